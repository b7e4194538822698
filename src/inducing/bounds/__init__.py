"""The bound that trains every model, and other bounds."""

from inducing.bounds.collapsed import collapse as collapse
from inducing.bounds.collapsed import collapsed_elbo as collapsed_elbo
from inducing.bounds.elbo import elbo as elbo
from inducing.bounds.evidence import log_evidence as log_evidence
from inducing.bounds.fourier import PrecomputedElbo as PrecomputedElbo
from inducing.bounds.gplvm import gplvm_collapse as gplvm_collapse
from inducing.bounds.gplvm import gplvm_elbo as gplvm_elbo
from inducing.bounds.iw_global import iw_elbo_global as iw_elbo_global
from inducing.bounds.objective import AbstractObjective as AbstractObjective
from inducing.bounds.objective import Optimum as Optimum
from inducing.bounds.terms import expected_log_likelihood as expected_log_likelihood
from inducing.bounds.terms import log_likelihood as log_likelihood
from inducing.bounds.upper import evidence_upper_bound as evidence_upper_bound
