"""Layers: sparse Gaussian processes, latent variables, Bayesian dense layers."""

from .base import AbstractLayer as AbstractLayer
from .sparse_gp import SparseGP as SparseGP
