"""Training: `fit`, natural gradients, starting values."""

from . import initialise as initialise
from .fit import FitResult as FitResult
from .fit import fit as fit
from .natural import natural_gradient_step as natural_gradient_step
