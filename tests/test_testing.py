"""The contract checks of `inducing.testing`: every part of ours passes, and deliberately broken parts are caught."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import inducing as ig
from inducing import testing
from inducing.likelihoods.base import LatentStart
from inducing.likelihoods.supports import COUNT
from inducing.parameters import Start, positive, real

from .features.cases import CASES as FEATURES
from .features.cases import VARIANTS
from .kernels.test_kernels import KERNELS
from .likelihoods.cases import CASES as LIKELIHOODS
from .priors.cases import BUILDERS, INTERDOMAIN

F, K, L = ig.features, ig.kernels, ig.likelihoods
RNG = np.random.default_rng(1)
Z = RNG.normal(size=(3, 2))
SE = K.SquaredExponential(0.8, 1.3)
slow = pytest.mark.slow


def some(names, rare):
    """Test parameters, of which the rare ones are slow: variants of others that take the same way."""
    return [pytest.param(name, marks=slow) if name in rare else name for name in names]


# ------------------------------------------------------------------------------------------------------------ our parts

MORE_KERNELS = {
    "HilbertSpace": (K.HilbertSpace(K.Matern32(0.5, 1.2), [(-3.5, 3.6), (-3.4, 3.5)], (4, 3)), None),
    "Spherical": (K.Spherical(K.Matern32(0.8, 1.3), [0.8, 1.0, 1.3]), K.with_bias(Z)),
    "SphericalArcCosine": (K.SphericalArcCosine(1, 1.3, [0.8, 1.0, 1.3]), K.with_bias(Z)),
    "Categorical": (K.Categorical([0.4, 0.7], 1.3), np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])),
    "SpectralMixture": (K.SpectralMixture([1.0, 0.5], [[0.3, -0.2], [0.0, 0.6]], [[0.1, 0.2], [0.3, 0.1]]), Z),
    "Coregion": (K.Coregion([[1.0], [-0.5], [0.3]], [0.3, 0.6, 0.2]), np.array([[0.0], [1.0], [2.0]])),
}
RARE_KERNELS = {"Matern32", "RationalQuadratic", "PeriodicMatern32", "ArcCosine0", "ArcCosine2", "ProductOfStationary"}


@pytest.mark.parametrize("name", some([*KERNELS, *MORE_KERNELS], RARE_KERNELS))
def test_kernels(name):
    testing.check_kernel(*MORE_KERNELS.get(name, (KERNELS.get(name),)))


MEANS = {
    "Zero": ig.means.Zero(),
    "Constant": ig.means.Constant([1.0, 2.0]),
    "Linear": ig.means.Linear([1.0, 2.0], 0.5),
    "Identity": ig.means.Identity(),
    "Function": ig.means.Function(eqx.nn.MLP(2, "scalar", 3, 1, jnp.tanh, key=jax.random.key(0))),
    "Sum": ig.means.Linear([1.0, 2.0]) + 0.5,
    "Product": 2.0 * ig.means.Linear([1.0, 2.0]),
}


@pytest.mark.parametrize("name", MEANS)
def test_means(name):
    testing.check_mean(MEANS[name])


def waves(x):
    return jnp.cos(jnp.arange(4, dtype=x.dtype) * x[0])


SMALLER = {  # quadrature on both sides takes long, and float32 needs a function that keeps it
    "integral": (F.Integral(waves, [-1.0], [1.0], 40), *FEATURES["integral"][1:]),
    "product": (F.Product((F.Fourier(-1.5, 1.6, 1), F.InducingPoints([[0.0], [0.7]]))), *FEATURES["product"][1:]),
}


@pytest.mark.parametrize("name", some(FEATURES, VARIANTS))
def test_features(name):
    features, kernel, X = SMALLER.get(name, FEATURES[name])
    testing.check_features(features, kernel, X, definition=name != "additive")


PRIORS = {build.__name__: build for build in BUILDERS + INTERDOMAIN}
RARE_PRIORS = {"intrinsic", "jacobian", "jacobian_and_values", "patch_means", "convolution_of_multiscale"}


@pytest.mark.parametrize("name", some([*PRIORS, "gp"], RARE_PRIORS))
def test_priors(name):
    if name == "gp":
        testing.check_prior(ig.GP(K.Matern32(), mean=2.0), F.InducingPoints(Z))
    else:
        case = PRIORS[name]()
        testing.check_prior(case.prior, case.features, case.X)


MORE_LIKELIHOODS = {
    "softmax": L.Softmax(3),
    "robust_max": L.RobustMax(3),
    "heteroscedastic": L.HeteroscedasticGaussian(),
    "per_output": L.PerOutput([L.Gaussian(0.2), L.Poisson(), L.Bernoulli()]),
    "censored": L.Censored(L.Weibull(1.5)),
    "per_datum": L.Gaussian(L.PerDatum([0.1, 0.2, 0.3], new=0.5)),
}
RARE_LIKELIHOODS = {
    "beta_probit", "binomial_probit", "binomial_logit", "bernoulli_logit", "poisson_softplus", "weibull",
    "zero_inflated_negative_binomial", "negative_binomial", "exponential",
}  # fmt: skip


@pytest.mark.parametrize("name", some([*LIKELIHOODS, *MORE_LIKELIHOODS], RARE_LIKELIHOODS))
def test_likelihoods(name):
    testing.check_likelihood(MORE_LIKELIHOODS[name] if name in MORE_LIKELIHOODS else LIKELIHOODS[name].likelihood)


ROOT = np.tril(0.3 * RNG.normal(size=(2, 3, 3))) + 0.5 * np.eye(3)
MIX = np.array([[1.0, 0.5], [-1.0, 0.3]])
LAYERS = {
    "SparseGP": lambda: ig.SparseGP(ig.GP(SE), F.InducingPoints(Z)),
    "SparseGP, trained": lambda: ig.SparseGP(
        ig.priors.Independent(SE, num=2), F.InducingPoints(Z), RNG.normal(size=(2, 3)), ROOT
    ),
    "SparseGP, coregionalised": lambda: ig.SparseGP(
        ig.priors.LMC(MIX, SE), F.InducingPoints(Z), RNG.normal(size=(2, 3)), ROOT, coordinates="u"
    ),
    "BayesianDense": lambda: ig.BayesianDense(2, 3),
    "Deterministic": lambda: ig.Deterministic(jnp.tanh),
    "Skip": lambda: ig.Skip(ig.BayesianDense(2, 1)),
    "LatentVariable": lambda: ig.LatentVariable(2),
    "LatentVariable of data": lambda: ig.LatentVariable(1, ig.layers.PerDatumEncoder(np.zeros((6, 1)))),
}


@pytest.mark.parametrize("name", some(LAYERS, {"SparseGP, trained"}))
def test_layers(name):
    testing.check_layer(LAYERS[name]())


def test_encoders():
    data = ig.Data(RNG.normal(size=(4, 2)), RNG.normal(size=(4, 1)))
    testing.check_encoder(ig.layers.PerDatumEncoder(np.zeros((4, 2)), 0.1, full=True), 2, data)
    testing.check_encoder(ig.layers.Amortised.mlp(jax.random.key(0), 1, x=2, y=1), 1, data)


def small_model():
    return ig.Model(ig.SparseGP(ig.GP(SE), F.InducingPoints(Z)), L.Gaussian(0.1))


DATA = ig.Data(RNG.normal(size=(4, 2)), RNG.normal(size=(4, 1)))


@pytest.mark.parametrize("objective", [ig.elbo, ig.collapsed_elbo, ig.log_evidence])
def test_objectives(objective):
    testing.check_objective(objective, small_model(), DATA)


# ---------------------------------------------------------------------------------------------------------- broken ones


def caught(message, check, *args):
    with pytest.raises(AssertionError, match=message):
        check(*args)


def mutant(base, **attributes):
    """A subclass named Broken, with some methods or answers replaced."""
    return type("Broken", (base,), {"__annotations__": {}, **attributes})


class Point(K.AbstractPointKernel):
    """A squared exponential by its values."""

    variance: Array = positive(1.0)
    smoothness: ClassVar[float] = math.inf

    def __call__(self, x, y):
        return self.variance * jnp.exp(-0.5 * jnp.sum((x - y) ** 2))


def test_a_kernel_of_points_passes():
    testing.check_kernel(Point(2.0))


def scaled_features(self, key, num, dim):
    w = jax.random.normal(key, (num, dim))
    return lambda X: jnp.concatenate([jnp.cos(X @ w.T), jnp.sin(X @ w.T)], axis=1) * jnp.sqrt(2.0 / num)


KERNEL_FAULTS = {
    r"Broken: gram\(X, X2\) must hold the kernel's values": {
        "gram": lambda self, X, X2=None: 2.0 * Point.gram(self, X, X2)
    },
    r"gram\(X\) must be symmetric": {
        "__call__": lambda self, x, y: 1.0 + 0.01 * jnp.sum(x), "gram": lambda self, X, X2=None: (
            jax.vmap(lambda x: jax.vmap(lambda y: self(x, y))(X if X2 is None else X2))(X)
        )
    },
    r"gram\(X\) must be positive semi-definite, but its smallest eigenvalue is -": {
        "__call__": lambda self, x, y: -jnp.exp(-0.5 * jnp.sum((x - y) ** 2))
    },
    r"diag\(X\) must be the diagonal": {"diag": lambda self, X: 2.0 * Point.diag(self, X)},
    r"diag\(X\) must have shape \[7\], but it has \[7, 1\]": {"diag": lambda self, X: Point.diag(self, X)[:, None]},
    r"gradients of gram and diag, also at coincident inputs, must be finite": {
        "__call__": lambda self, x, y: jnp.exp(-jnp.sqrt(jnp.sum((x - y) ** 2))), "smoothness": 0
    },
    r"random_features φ must satisfy E φ": {"random_features": scaled_features},
    r"smoothness 1 along column 0 must be true": {
        "__call__": lambda self, x, y: jnp.exp(-jnp.sum(jnp.abs(x - y))), "smoothness": 1
    },
    r"multiplying the parameters of amplitude\(\)": {"amplitude": lambda self: [(self.variance, 2.0)]},
    r"start must return the part's own arrays": {"start": lambda self, x: [Start(jnp.ones(()), 1.0, False)]},
    r"a value of start must be positive, but it holds -1": {
        "start": lambda self, x: [Start(self.variance, -1.0, False)]
    },
    r"must be float32 for float32": {
        "__call__": lambda self, x, y: jnp.exp(-0.5 * jnp.sum((x - y) ** 2)).astype(jnp.float64)
    },
    r"must run under jit, but raised TracerBoolConversionError": {
        "__call__": lambda self, x, y: jnp.exp(-jnp.sum((x - y) ** 2)) if jnp.sum(x) < 99.0 else jnp.zeros(())
    },
}  # fmt: skip


@pytest.mark.parametrize("message", KERNEL_FAULTS)
def test_broken_kernels(message):
    caught(message, testing.check_kernel, mutant(Point, **KERNEL_FAULTS[message])())


@pytest.mark.filterwarnings("ignore")
def test_fields_of_arrays_must_be_declared_and_settings_hashable(unchecked):
    class Undeclared(Point):
        scale: Array = eqx.field(default_factory=lambda: jnp.ones(()))

    class Unhashable(Point):
        places: np.ndarray = eqx.field(static=True, default_factory=lambda: np.ones(2))

    caught("fields with arrays must be declared; .* but Undeclared.scale is not", testing.check_kernel, Undeclared())
    caught("static fields must be hashable", testing.check_kernel, Unhashable())
    caught("must be derived from AbstractKernel", testing.check_kernel, ig.means.Zero())


class Decay(ig.means.AbstractMean):
    height: Array = real(1.0)

    def __call__(self, X):
        return self.height * jnp.exp(-X[:, 0])


MEAN_FAULTS = {
    r"must have shape \[N\] or \[N, P\] with N = 6, but it has \[\]": {"__call__": lambda self, X: jnp.sum(X)},
    "must depend only on its own input": {"__call__": lambda self, X: X[:, 0] - jnp.mean(X)},
    "is_zero says that the mean is zero": {"is_zero": True},
    "is_constant says": {"is_constant": True},
    "gradients must be finite": {"__call__": lambda self, X: jnp.sqrt(self.height - self.height + 0 * X[:, 0])},
    "units must broadcast": {"units": lambda self, size, spread: [(self.height, jnp.ones(3))]},
}


@pytest.mark.parametrize("message", MEAN_FAULTS)
def test_broken_means(message):
    caught(message, testing.check_mean, mutant(Decay, **MEAN_FAULTS[message])())


class Increments(F.AbstractFeatures):
    Z: Array = real(((0.0,), (0.5,), (1.0,)))
    exact: ClassVar[bool] = True
    uses_kernel: ClassVar[bool] = False

    @property
    def num_features(self):
        return len(self.Z) - 1

    def apply(self, f, kernel=None):
        return f(self.Z[1:]) - f(self.Z[:-1])

    def Kuf(self, kernel, X):
        return F.general_Kuf(self, kernel, X)

    def Kuu(self, kernel, jitter):
        return F.general_Kuu(self, kernel, jitter)


FEATURE_FAULTS = {
    "num_features must be a whole number from 1": {"num_features": 0},
    r"Kuf\(kernel, X\) must have shape \[2, 6\], but it has \[6, 2\]": {
        "Kuf": lambda self, kernel, X: F.general_Kuf(self, kernel, X).T
    },
    "joint covariance of u and .* must be positive semi-definite": {
        "Kuf": lambda self, kernel, X: 3.0 * F.general_Kuf(self, kernel, X),
        "Kuu": lambda self, kernel, jitter: ig.linalg.Dense(0.1 * jnp.eye(2), jitter),
    },
    "Kuf must be apply to k": {"Kuf": lambda self, kernel, X: 0.9 * F.general_Kuf(self, kernel, X)},
    "Kuu must be apply to both arguments": {
        "Kuu": lambda self, kernel, jitter: ig.linalg.Dense(2.0 * jnp.eye(2), jitter)
    },
    "apply must be linear": {
        "apply": lambda self, f, kernel=None: (f(self.Z[1:]) - f(self.Z[:-1])) ** 2,
        "Kuf": lambda self, k, X: F.general_Kuf(Increments(self.Z), k, X),
        "Kuu": lambda self, k, jitter: F.general_Kuu(Increments(self.Z), k, jitter),
    },
    "are_values says that apply": {"are_values": True, "locations": property(lambda self: self.Z[1:])},
}  # fmt: skip


@pytest.mark.parametrize("message", FEATURE_FAULTS)
def test_broken_features(message):
    broken = mutant(Increments, **FEATURE_FAULTS[message])()
    caught(message, testing.check_features, broken, K.SquaredExponential(0.7))


PRIOR_FAULTS = {
    "num_sites must divide num_outputs, but they are 2 and 1": {"num_sites": 2},
    r"mean\(X\) must have shape \[4, 1\], but it has \[4\]": {"mean": lambda self, X: jnp.zeros(len(X))},
    r"Kff_diag\(X\) must be the diagonal": {"Kff_diag": lambda self, X: 2.0 * ig.GP.Kff_diag(self, X)},
    r"Kuf\(features, X\) as \[K, M, N, J\] must have shape": {
        "Kuf": lambda self, features, X: ig.GP.Kuf(self, features, X)[..., 0]
    },
    "the joint covariance of u and the sites of latent 0 must be positive": {
        "Kuf": lambda self, features, X: 3.0 * ig.GP.Kuf(self, features, X)
    },
    "features and sites of draws of latent 0 must have the stated covariance": {
        "draw_latents": lambda self, key, num, dim: (
            ig.GP.draw_latents(self, key, num, dim)[0], lambda X: 2.0 * ig.GP.draw_latents(self, key, num, dim)[1](X)
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("message", PRIOR_FAULTS)
def test_broken_priors(message):
    broken = mutant(ig.GP, **PRIOR_FAULTS[message])(SE)
    caught(message, testing.check_prior, broken, F.InducingPoints(Z))


class Logistic(L.AbstractQuadratureLikelihood):
    scale: Array = positive(0.7)

    def log_prob(self, f, y, *, index=None):
        z = (y - f) / self.scale
        return -z - 2.0 * jax.nn.softplus(-z) - jnp.log(self.scale)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Logistic

        return Logistic(f, self.scale)


def test_a_likelihood_by_its_log_density_passes():
    testing.check_likelihood(Logistic(0.3))
    testing.check_likelihood(mutant(Logistic, distribution=L.AbstractQuadratureLikelihood.distribution)())


def twice(self, f, *, index=None):
    from numpyro.distributions import Logistic

    return Logistic(f, 2.0 * self.scale)


LIKELIHOOD_FAULTS = {
    "predictive density must integrate to 1": {"log_prob": lambda self, f, y, *, index=None: -((y - f) ** 2)},
    "expected_log_prob must be E log p": {
        "expected_log_prob": lambda self, mean, cov, y, *, index=None: self.log_prob(mean, y)
    },
    "predictive_log_prob must be log E p": {
        "predictive_log_prob": lambda self, mean, cov, y, *, index=None: self.log_prob(mean, y)
    },
    "predictive_moments must give the variance": {"distribution": twice},
    "distribution must draw labels of the density": {
        "distribution": twice, "predictive_moments": lambda self, m, c, *, index=None: Logistic.predictive_moments(
            Logistic(self.scale), m, c), "predictive_cdf": lambda self, m, c, y, *, index=None: Logistic.predictive_cdf(
            Logistic(self.scale), m, c, y)
    },
    r"predictive_cdf\(y\) must be the probability": {
        "predictive_cdf": lambda self, m, c, y, *, index=None: 1.0 - Logistic.predictive_cdf(self, m, c, y)
    },
    "check must refuse labels outside the support": {"check": lambda self, y, *, index=None: None},
    "gaussian_noise says that log_prob": {"gaussian_noise": lambda self, shape, index=None: jnp.ones(shape)},
    "probabilities of the 2 classes": {"class_count": lambda self: 2},
    r"start\(y\).centre must have shape \[1\], but it has \[2\]": {
        "start": lambda self, y: LatentStart(np.zeros(2), np.ones(2), [])
    },
    "start must return the part's own arrays": {
        "start": lambda self, y: LatentStart(np.zeros(1), np.ones(1), [Start(jnp.ones(()), 1.0, False)])
    },
    r"log_prob\(f, y\) must have shape \[3, 1\], but it has \[3\]": {
        "log_prob": lambda self, f, y, *, index=None: jnp.sum(-((y - f) ** 2), axis=1)
    },
}  # fmt: skip


@pytest.mark.parametrize("message", LIKELIHOOD_FAULTS)
def test_broken_likelihoods(message):
    caught(message, testing.check_likelihood, mutant(Logistic, **LIKELIHOOD_FAULTS[message])())


def test_wrong_class_probabilities_are_caught():
    def even(self, mean, cov, *, index=None):
        return jnp.full((*mean.shape, 2), 0.5)

    broken = mutant(ig.likelihoods.Bernoulli, class_probabilities=even)()
    caught("class_probabilities must be those of predictive_log_prob", testing.check_likelihood, broken)


def test_a_wrong_support_is_caught():
    message = "the predictive density must integrate to 1 over the support"
    caught(message, testing.check_likelihood, mutant(Logistic, support=COUNT)())


DENSE = ig.BayesianDense
LAYER_FAULTS = {
    r"propagate must turn \[N, 1, D\] into .* but the output has \[6, 1, 3\]": {"width": lambda self, inputs: 2},
    r"kl\(\) must be finite and not negative, but it is -1.0": {"kl": lambda self: -jnp.ones(())},
    "the variances of moments must be the diagonal of joint": {
        "moments": lambda self, x, correlated=False, cache=None: (
            DENSE.moments(self, x, correlated, cache)[0], 2.0 * DENSE.moments(self, x, correlated, cache)[1]
        )
    },
    "outputs of propagate at the replicates of a datum must have the stated": {
        "propagate": lambda self, x, key, data, replicates: (
            DENSE.propagate(self, x, key, data, replicates)[0]
            + jax.random.normal(key, (*x.shape[:2], 3), x.dtype), jnp.zeros(x.shape[:2], x.dtype)
        )
    },
    "draw must give one function": {
        "draw": lambda self, key, num, dim: lambda X, x=None: (
            jnp.repeat(jnp.mean(X, keepdims=True), 3, 1) + 0 * X[:, :1]
        )
    },
    "draws must have the stated mean": {
        "draw": lambda self, key, num, dim: lambda X, x=None: 5.0 + DENSE.draw(self, key, num, dim)(X)
    },
    "variational must return the part's own arrays": {"variational": lambda self: jnp.ones(3)},
    "must give equal replicates for equal inputs": {
        "random": False, "propagate": lambda self, x, key, data, replicates: (
            jax.random.normal(key, (*x.shape[:2], 3), x.dtype), jnp.zeros(x.shape[:2], x.dtype)
        )
    },
    "a layer that is not terminal must raise a TypeError in moments": {"terminal": False},
    "without couples_replicates": {
        "couples_replicates": False, "propagate": lambda self, x, key, data, replicates: (
            jnp.repeat(jnp.sum(x, axis=(1, 2), keepdims=True), x.shape[1], 1) * jnp.ones((1, 1, 3), x.dtype),
            jnp.zeros(x.shape[:2], x.dtype)
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("message", LAYER_FAULTS)
def test_broken_layers(message):
    caught(message, testing.check_layer, mutant(DENSE, **LAYER_FAULTS[message])(2, 3))


def test_outputs_that_covary_in_secret_are_caught():
    Broken = mutant(ig.SparseGP, correlated=False)
    layer = Broken(ig.priors.LMC([[1.0], [2.0]], SE), F.InducingPoints(Z))
    caught("must give the covariance of outputs|correlated is False", testing.check_layer, layer)


def test_broken_encoders():
    base = ig.layers.PerDatumEncoder

    def mixed(self, x, data, dim):
        mean, root = base.__call__(self, x, data, dim)
        return mean - jnp.mean(data.y), root

    for message, attributes in {
        "sees must name some of": {"sees": ("colour",)},
        r"q\(h_n\) must depend on datum n alone": {"__call__": mixed},
        r"the mean must have shape \[4, R, 1\], but it has \[4, 1, 2\]": {
            "__call__": lambda self, x, data, dim: 2 * (jnp.zeros((len(data), 1, 2)),)
        },
        "per_datum must return the part's own arrays": {"per_datum": lambda self: (jnp.ones(2),)},
    }.items():
        caught(message, testing.check_encoder, mutant(base, **attributes)(np.zeros((4, 1))), 1, DATA)


def test_broken_objectives():
    def unscaled(model, data, *, num_data=None):
        return jnp.sum(data.y**2) * model.likelihood.variance

    caught("unscaled: with num_data it must scale", testing.check_objective, unscaled, small_model(), DATA)
    caught(
        "it must run under jit and grad, but raised TypeError",
        testing.check_objective,
        lambda m, d: m.likelihood.variance * d.y,
        *_both(),
    )
    caught("must be finite", testing.check_objective, lambda m, d: jnp.log(-m.likelihood.variance), *_both())


def _both():
    return small_model(), DATA
