"""Reports and plots of models and fits.

Plots need Matplotlib (`pip install inducing[plot]`), HTML reports Plotly (`pip install inducing[tables]`).
"""

from inducing.report.densities import plot_density as plot_density
from inducing.report.effects import Effect as Effect
from inducing.report.effects import effect as effect
from inducing.report.fits import plot_calibration as plot_calibration
from inducing.report.fits import plot_history as plot_history
from inducing.report.html import write_html as write_html
from inducing.report.predictions import plot_classification as plot_classification
from inducing.report.predictions import plot_posterior as plot_posterior
from inducing.report.relevance import Relevance as Relevance
from inducing.report.relevance import plot_relevance as plot_relevance
from inducing.report.relevance import relevance as relevance
from inducing.report.summary import summary as summary
from inducing.report.survival import plot_survival as plot_survival
