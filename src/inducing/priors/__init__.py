"""Priors over functions: linear maps of latent Gaussian processes."""

from .as_input import as_input as as_input
from .base import AbstractPrior as AbstractPrior
from .convolution import AbstractSmoothing as AbstractSmoothing
from .convolution import ConvolutionProcess as ConvolutionProcess
from .convolution import GaussianSmoothing as GaussianSmoothing
from .convolution import Smoothing as Smoothing
from .derivative import Derivative as Derivative
from .exact import ExactGP as ExactGP
from .gp import GP as GP
from .image import ImageConvolution as ImageConvolution
from .independent import Independent as Independent
from .lmc import LMC as LMC
from .lmc import IntrinsicCoregionalisation as IntrinsicCoregionalisation
from .matrix_valued import MatrixValued as MatrixValued
