"""Inducing features: the linear functionals that define u."""

from inducing.features.base import AbstractFeatures as AbstractFeatures
from inducing.features.base import general_Kuf as general_Kuf
from inducing.features.base import general_Kuu as general_Kuu
from inducing.features.composite import Additive as Additive
from inducing.features.composite import Product as Product
from inducing.features.composite import Union as Union
from inducing.features.derivative import InducingDerivatives as InducingDerivatives
from inducing.features.eigen import EigenLaplacian as EigenLaplacian
from inducing.features.eigen import EigenMercer as EigenMercer
from inducing.features.eigen import EigenNumerical as EigenNumerical
from inducing.features.eigen_geometric import EigenGeometric as EigenGeometric
from inducing.features.fourier import Fourier as Fourier
from inducing.features.fourier import FreeFourier as FreeFourier
from inducing.features.frequency_vectors import BoxFourier as BoxFourier
from inducing.features.frequency_vectors import GaussianFourier as GaussianFourier
from inducing.features.integral import Integral as Integral
from inducing.features.integral import RegionAverage as RegionAverage
from inducing.features.integral import plain_fourier as plain_fourier
from inducing.features.multiscale import Multiscale as Multiscale
from inducing.features.padded import Padded as Padded
from inducing.features.points import InducingPoints as InducingPoints
from inducing.features.spherical import SphericalHarmonics as SphericalHarmonics
