"""Training: `fit`, natural gradients, starting values."""

from inducing.training import initialise as initialise
from inducing.training.fit import FitResult as FitResult
from inducing.training.fit import fit as fit
from inducing.training.natural import natural_gradient_step as natural_gradient_step
