"""Layers: sparse Gaussian processes, latent variables, Bayesian dense layers."""

from .base import AbstractLayer as AbstractLayer
from .bayesian_dense import BayesianDense as BayesianDense
from .deterministic import Deterministic as Deterministic
from .deterministic import Skip as Skip
from .encoders import AbstractEncoder as AbstractEncoder
from .encoders import Amortised as Amortised
from .encoders import PerDatum as PerDatum
from .latent_variable import LatentVariable as LatentVariable
from .sparse_gp import SparseGP as SparseGP
