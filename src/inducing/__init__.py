"""Sparse variational Gaussian processes in JAX: from a one-line regression to importance-weighted deep models."""

from importlib.metadata import version as _version

from . import covariance as covariance
from . import features as features
from . import gaussian as gaussian
from . import kernels as kernels
from . import layers as layers
from . import likelihoods as likelihoods
from . import means as means
from . import objectives as objectives
from . import parameters as parameters
from . import prediction as prediction
from . import priors as priors
from . import report as report
from .collapsed import collapse as collapse
from .collapsed import collapsed_elbo as collapsed_elbo
from .collapsed import log_evidence as log_evidence
from .data import Data as Data
from .gplvm import gplvm_collapse as gplvm_collapse
from .gplvm import gplvm_elbo as gplvm_elbo
from .io import load as load
from .io import save as save
from .layers import BayesianDense as BayesianDense
from .layers import Deterministic as Deterministic
from .layers import LatentVariable as LatentVariable
from .layers import Skip as Skip
from .layers import SparseGP as SparseGP
from .model import Model as Model
from .objectives import elbo as elbo
from .objectives import iw_elbo_global as iw_elbo_global
from .parameters import Module as Module
from .precomputed import PrecomputedElbo as PrecomputedElbo
from .priors import GP as GP
from .stacks import deep_gp as deep_gp
from .summary import summary as summary
from .training import FitResult as FitResult
from .training import fit as fit
from .training import initialise as initialise
from .training import natural_gradient_step as natural_gradient_step

__version__ = _version("inducing")
