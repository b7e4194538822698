"""Structured positive-definite matrices.

Every matrix K has a square, invertible root R with K = R Rᵀ that depends smoothly on the entries of K. Whitening is
w = R⁻¹ v. `Dense` is the only place in the library that adds jitter.
"""

from inducing.linalg.base import AbstractCovariance as AbstractCovariance
from inducing.linalg.base import batched as batched
from inducing.linalg.base import diagonal_of as diagonal_of
from inducing.linalg.dense import Dense as Dense
from inducing.linalg.dense import default_jitter as default_jitter
from inducing.linalg.dense import root_derivative as root_derivative
from inducing.linalg.structured import BlockDiagonal as BlockDiagonal
from inducing.linalg.structured import Diagonal as Diagonal
from inducing.linalg.structured import DiagonalPlusLowRank as DiagonalPlusLowRank
from inducing.linalg.structured import Kronecker as Kronecker
from inducing.linalg.structured import same_rank as same_rank
