"""Layers: sparse Gaussian processes, latent variables, Bayesian dense layers."""

from inducing.layers.base import AbstractLayer as AbstractLayer
from inducing.layers.bayesian_dense import BayesianDense as BayesianDense
from inducing.layers.deterministic import Deterministic as Deterministic
from inducing.layers.deterministic import Skip as Skip
from inducing.layers.encoders import AbstractEncoder as AbstractEncoder
from inducing.layers.encoders import Amortised as Amortised
from inducing.layers.encoders import PerDatumEncoder as PerDatumEncoder
from inducing.layers.latent_variable import LatentVariable as LatentVariable
from inducing.layers.sparse_gp import SparseGP as SparseGP
