"""Covariance functions."""

from inducing.kernels.base import AbstractKernel as AbstractKernel
from inducing.kernels.base import AbstractPointKernel as AbstractPointKernel
from inducing.kernels.composite import ActiveDims as ActiveDims
from inducing.kernels.composite import ChangePoint as ChangePoint
from inducing.kernels.composite import Product as Product
from inducing.kernels.composite import Sum as Sum
from inducing.kernels.composite import Warped as Warped
from inducing.kernels.constant import Constant as Constant
from inducing.kernels.constant import White as White
from inducing.kernels.coregion import Coregion as Coregion
from inducing.kernels.dot_product import ArcCosine as ArcCosine
from inducing.kernels.dot_product import Linear as Linear
from inducing.kernels.dot_product import Polynomial as Polynomial
from inducing.kernels.hilbert_space import HilbertSpace as HilbertSpace
from inducing.kernels.periodic import Cosine as Cosine
from inducing.kernels.periodic import Periodic as Periodic
from inducing.kernels.stationary import AbstractStationary as AbstractStationary
from inducing.kernels.stationary import Matern12 as Matern12
from inducing.kernels.stationary import Matern32 as Matern32
from inducing.kernels.stationary import Matern52 as Matern52
from inducing.kernels.stationary import RationalQuadratic as RationalQuadratic
from inducing.kernels.stationary import SquaredExponential as SquaredExponential
from inducing.kernels.zonal import AbstractZonal as AbstractZonal
from inducing.kernels.zonal import Spherical as Spherical
from inducing.kernels.zonal import SphericalArcCosine as SphericalArcCosine
from inducing.kernels.zonal import with_bias as with_bias
