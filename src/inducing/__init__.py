"""Sparse variational Gaussian processes in JAX: from a one-line regression to importance-weighted deep models."""

from importlib.metadata import version as _version

from inducing import bounds as bounds
from inducing import distributed as distributed
from inducing import features as features
from inducing import gaussian as gaussian
from inducing import inference as inference
from inducing import kernels as kernels
from inducing import layers as layers
from inducing import likelihoods as likelihoods
from inducing import linalg as linalg
from inducing import means as means
from inducing import parameters as parameters
from inducing import priors as priors
from inducing import report as report
from inducing import scores as scores
from inducing import testing as testing
from inducing.bounds.collapsed import collapse as collapse
from inducing.bounds.collapsed import collapsed_elbo as collapsed_elbo
from inducing.bounds.elbo import elbo as elbo
from inducing.bounds.evidence import log_evidence as log_evidence
from inducing.bounds.fourier import PrecomputedElbo as PrecomputedElbo
from inducing.bounds.gplvm import gplvm_collapse as gplvm_collapse
from inducing.bounds.gplvm import gplvm_elbo as gplvm_elbo
from inducing.bounds.iw_global import iw_elbo_global as iw_elbo_global
from inducing.bounds.upper import evidence_upper_bound as evidence_upper_bound
from inducing.data import Data as Data
from inducing.inference.files import predict_files as predict_files
from inducing.io import load as load
from inducing.io import save as save
from inducing.layers import BayesianDense as BayesianDense
from inducing.layers import Deterministic as Deterministic
from inducing.layers import LatentVariable as LatentVariable
from inducing.layers import Skip as Skip
from inducing.layers import SparseGP as SparseGP
from inducing.model import Model as Model
from inducing.parameters import Module as Module
from inducing.priors import GP as GP
from inducing.report.summary import summary as summary
from inducing.streams import Stream as Stream
from inducing.training import FitResult as FitResult
from inducing.training import fit as fit
from inducing.training import initialise as initialise
from inducing.training import natural_gradient_step as natural_gradient_step
from inducing.training.deep_gp import deep_gp as deep_gp
from inducing.training.grow import grow as grow
from inducing.training.monotone import monotone as monotone
from inducing.training.nuts import PosteriorSamples as PosteriorSamples
from inducing.training.nuts import sample_posterior as sample_posterior
from inducing.training.update import update as update

__version__ = _version("inducing")
