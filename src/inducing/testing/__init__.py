"""Contract checks for the parts of a model, yours and ours.

Every abstract base class makes promises: a kernel's Gram matrix is symmetric and positive semi-definite, the expected
log density of a likelihood is the expectation of its log density, a layer's samples have the moments that it states.
The functions of this module check those promises at a few points. Call them in the tests of your own parts; our test
suite runs them on every part of the library. If a promise is broken, they raise an AssertionError that names the part,
the promise and what was found.


"""

from inducing.testing.encoders import check_encoder as check_encoder
from inducing.testing.features import check_features as check_features
from inducing.testing.kernels import check_kernel as check_kernel
from inducing.testing.layers import check_layer as check_layer
from inducing.testing.likelihoods import check_likelihood as check_likelihood
from inducing.testing.means import check_mean as check_mean
from inducing.testing.objectives import check_objective as check_objective
from inducing.testing.priors import check_prior as check_prior
