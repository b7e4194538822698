"""Pictures of models and fits, one call each; they need Matplotlib (`pip install inducing[plot]`)."""

from .fits import plot_calibration as plot_calibration
from .fits import plot_history as plot_history
from .predictions import plot_classification as plot_classification
from .predictions import plot_posterior as plot_posterior
