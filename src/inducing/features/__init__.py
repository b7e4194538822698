"""Inducing features: the linear functionals that define u."""

from .base import AbstractFeatures as AbstractFeatures
from .base import general_Kuf as general_Kuf
from .base import general_Kuu as general_Kuu
from .composite import Additive as Additive
from .composite import Product as Product
from .derivative import Derivative as Derivative
from .derivative import Union as Union
from .eigen import EigenLaplacian as EigenLaplacian
from .eigen import EigenMercer as EigenMercer
from .eigen import EigenNumerical as EigenNumerical
from .fourier import Fourier as Fourier
from .fourier import FreeFourier as FreeFourier
from .integral import Integral as Integral
from .integral import RegionAverage as RegionAverage
from .integral import plain_fourier as plain_fourier
from .multiscale import Multiscale as Multiscale
from .points import InducingPoints as InducingPoints
from .spherical import SphericalHarmonics as SphericalHarmonics
