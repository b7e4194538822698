"""Priors over functions: linear maps of latent Gaussian processes."""

from inducing.priors.as_input import as_input as as_input
from inducing.priors.base import AbstractPrior as AbstractPrior
from inducing.priors.convolution import AbstractSmoothing as AbstractSmoothing
from inducing.priors.convolution import ConvolutionProcess as ConvolutionProcess
from inducing.priors.convolution import GaussianSmoothing as GaussianSmoothing
from inducing.priors.convolution import Smoothing as Smoothing
from inducing.priors.derivative import Derivative as Derivative
from inducing.priors.exact import ExactGP as ExactGP
from inducing.priors.gp import GP as GP
from inducing.priors.image import ImageConvolution as ImageConvolution
from inducing.priors.independent import Independent as Independent
from inducing.priors.lmc import LMC as LMC
from inducing.priors.lmc import IntrinsicCoregionalisation as IntrinsicCoregionalisation
from inducing.priors.matrix_valued import MatrixValued as MatrixValued
from inducing.priors.stack import Stack as Stack
