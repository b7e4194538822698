"""Likelihoods p(y | f), each with its expectations under Gaussian f and its predictive distribution."""

from inducing.likelihoods.base import AbstractElementwise as AbstractElementwise
from inducing.likelihoods.base import AbstractLikelihood as AbstractLikelihood
from inducing.likelihoods.base import AbstractQuadratureLikelihood as AbstractQuadratureLikelihood
from inducing.likelihoods.base import PerDatum as PerDatum
from inducing.likelihoods.bernoulli import Bernoulli as Bernoulli
from inducing.likelihoods.bernoulli import Binomial as Binomial
from inducing.likelihoods.gaussian import Gaussian as Gaussian
from inducing.likelihoods.gaussian import HeteroscedasticGaussian as HeteroscedasticGaussian
from inducing.likelihoods.predictive import Predictive as Predictive
