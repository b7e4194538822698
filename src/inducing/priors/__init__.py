"""Priors over functions: linear maps of latent Gaussian processes."""

from .base import AbstractPrior as AbstractPrior
from .exact import ExactGP as ExactGP
from .gp import GP as GP
