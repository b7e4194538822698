"""Likelihoods p(y | f), each with its expectations under Gaussian f and its predictive distribution."""

from inducing.likelihoods.base import AbstractElementwise as AbstractElementwise
from inducing.likelihoods.base import AbstractLikelihood as AbstractLikelihood
from inducing.likelihoods.base import AbstractQuadratureLikelihood as AbstractQuadratureLikelihood
from inducing.likelihoods.base import PerDatum as PerDatum
from inducing.likelihoods.bernoulli import Bernoulli as Bernoulli
from inducing.likelihoods.bernoulli import Binomial as Binomial
from inducing.likelihoods.censored import Censored as Censored
from inducing.likelihoods.continuous import Beta as Beta
from inducing.likelihoods.continuous import Exponential as Exponential
from inducing.likelihoods.continuous import Gamma as Gamma
from inducing.likelihoods.continuous import Laplace as Laplace
from inducing.likelihoods.continuous import LogNormal as LogNormal
from inducing.likelihoods.continuous import StudentT as StudentT
from inducing.likelihoods.continuous import Weibull as Weibull
from inducing.likelihoods.counts import NegativeBinomial as NegativeBinomial
from inducing.likelihoods.counts import Poisson as Poisson
from inducing.likelihoods.counts import ZeroInflatedNegativeBinomial as ZeroInflatedNegativeBinomial
from inducing.likelihoods.counts import ZeroInflatedPoisson as ZeroInflatedPoisson
from inducing.likelihoods.gaussian import Gaussian as Gaussian
from inducing.likelihoods.gaussian import HeteroscedasticGaussian as HeteroscedasticGaussian
from inducing.likelihoods.multiclass import RobustMax as RobustMax
from inducing.likelihoods.multiclass import Softmax as Softmax
from inducing.likelihoods.ordinal import Ordinal as Ordinal
from inducing.likelihoods.per_output import PerOutput as PerOutput
from inducing.likelihoods.predictive import Predictive as Predictive
