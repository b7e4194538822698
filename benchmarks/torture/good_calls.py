"""Good calls of constructors of parts, for calls.py to spoil, and first uses of what they make."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import inducing as ig
from inducing import features as F
from inducing import kernels as K
from inducing import layers, means, priors
from inducing import likelihoods as L

X = np.linspace(-0.9, 0.9, 6)[:, None]
X2 = np.random.default_rng(0).uniform(-0.9, 0.9, (6, 2))
Y = np.sin(3.0 * X)
KEY = jax.random.key(0)


class Call(NamedTuple):
    """A good call.

    Attributes:
        function: what is called.
        arguments: good arguments by name.
        use: what is done first with a result, or None.
        weight: how often it is tried, relative to the others.
    """

    function: Callable
    arguments: dict[str, Any]
    use: Callable | None = None
    weight: float = 1.0


def use_kernel(kernel: Any) -> Any:
    """The matrix of the kernel, at points of one to three columns: the first that fit."""
    return _first(lambda x: np.asarray(kernel.gram(x)), (X, X2, np.hstack([X, X2])))


def use_mean(mean: Any) -> Any:
    """The mean at points of one or two columns."""
    return _first(lambda x: np.asarray(mean(jnp.asarray(x))), (X, X2))


def _first(ask: Callable, inputs: tuple[Any, ...]) -> Any:
    """The answer for the first inputs that fit; the error of the last if none do."""
    for x in inputs[:-1]:
        try:
            return ask(x)
        except ValueError:
            continue
    return ask(inputs[-1])


def use_layer(layer: Any) -> None:
    """Trace the bound of a model with Gaussian noise that ends in the layer."""
    dim = layer.num_inputs
    width = layer.width(1 if dim is None else dim)
    x = np.zeros((6, 1 if dim is None else dim))
    use_model(ig.Model(layer, L.Gaussian()), x, np.zeros((6, width)))


def use_model(model: Any, x: Any = X, y: Any = Y) -> None:
    """Trace the bound of a model."""
    data = ig.Data(x, y)
    jax.eval_shape(lambda: ig.elbo(model, data, key=KEY))


def use_features(kernel: Any) -> Callable:
    """Trace the bound of a GP with the features."""
    return lambda features: use_layer(ig.SparseGP(ig.GP(kernel), features))


def use_prior(features: Any) -> Callable:
    """Trace the bound of a GP with the prior."""
    return lambda prior: use_layer(ig.SparseGP(prior, features))


def use_likelihood(y: Any) -> Callable:
    """The expected log-density of good labels."""
    labels = np.broadcast_to(np.asarray(y, float).reshape(-1, 1), (4, 1))

    def use(likelihood: Any) -> Any:
        width = likelihood.num_latents(1)
        mean = jnp.full((4, width), 0.3)
        index = jnp.zeros(4, int)
        cov = jnp.full((4, width), 0.2) if not likelihood.joint else jnp.tile(0.2 * jnp.eye(width), (4, 1, 1))
        return np.asarray(likelihood.expected_log_prob(mean, cov, jnp.asarray(labels), index=index))

    return use


def use_known_noise(noise: Any) -> Any:
    """The bound of data that all have the index 0."""
    return ig.elbo(ig.Model(LAYER, L.Gaussian(noise)), ig.Data(X, Y, index=np.zeros(6, int)))


def use_data(data: Any) -> Any:
    """Some of its rows."""
    return data.rows(jnp.arange(2)).x


POINTS = F.InducingPoints(X[::2])
SE, M52 = K.SquaredExponential(), K.Matern52()
PRIOR = ig.GP(M52)
LAYER = ig.SparseGP(PRIOR, POINTS)
MODEL = ig.Model(LAYER, L.Gaussian(0.1))
DEEP = ig.Model([ig.LatentVariable(1), ig.SparseGP(ig.GP(M52), F.InducingPoints(X2[:3]))], L.Gaussian(0.1))
CLASSES = ig.Model(ig.BayesianDense(1, 3), L.Softmax(3))
FOURIER = ig.Model(ig.SparseGP(PRIOR, F.Fourier(-2.0, 2.0, 3)), L.Gaussian(0.1))
COLUMNS = K.ActiveDims(M52, (0,)) * K.ActiveDims(K.Matern32(), (1,))
ROWS = K.ActiveDims(SE, (0,)) * K.ActiveDims(K.Coregion([[1.0], [2.0]], [0.5, 0.5]), (1,))
BAND = {"lower": [-1.0], "upper": [1.0]}


def kernels() -> dict[str, Call]:
    """Calls of kernels and means."""
    calls = {
        n: Call(getattr(K, n), {"lengthscale": [0.5], "variance": 2.0}, use_kernel)
        for n in ("Matern12", "Matern32", "Matern52", "SquaredExponential", "Cosine")
    }
    calls |= {n: Call(getattr(K, n), {"variance": 2.0}, use_kernel) for n in ("Constant", "Linear", "White")}
    calls |= {
        "RationalQuadratic": Call(K.RationalQuadratic, {"lengthscale": 1.0, "variance": 2.0, "alpha": 1.0}, use_kernel),
        "ArcCosine": Call(
            K.ArcCosine, {"order": 1, "variance": 1.0, "weight_variance": 1.0, "bias_variance": 1.0}, use_kernel
        ),
        "Polynomial": Call(K.Polynomial, {"degree": 2, "variance": 1.0, "offset": 1.0}, use_kernel),
        "Periodic": Call(K.Periodic, {"base": SE, "period": 1.0}, use_kernel),
        "ActiveDims": Call(K.ActiveDims, {"kernel": SE, "dims": (1,)}, use_kernel),
        "ChangePoint": Call(
            K.ChangePoint, {"kernels": [SE, M52], "locations": [0.0], "steepness": 1.0, "dim": 0}, use_kernel
        ),
        "Coregion": Call(
            K.Coregion, {"W": [[1.0], [2.0]], "kappa": [1.0, 1.0]}, lambda k: np.asarray(k.gram(np.zeros((3, 1))))
        ),
        "HilbertSpace": Call(K.HilbertSpace, {"kernel": SE, "box": [(-2.0, 2.0)], "num": 4}, use_kernel),
        "Sum": Call(K.Sum, {"kernels": [SE, M52]}, use_kernel),
        "Product": Call(K.Product, {"kernels": [SE, M52]}, use_kernel),
        "Warped": Call(K.Warped, {"kernel": SE, "function": jnp.tanh}, use_kernel),
        "Spherical": Call(K.Spherical, {"kernel": SE, "scale": 1.0}, lambda k: np.asarray(k.gram(np.eye(3)))),
        "SphericalArcCosine": Call(
            K.SphericalArcCosine, {"order": 1, "variance": 1.0, "scale": 1.0}, lambda k: np.asarray(k.gram(np.eye(3)))
        ),
        "kernel()": Call(SE.__call__, {"x": [0.1], "y": [0.2]}, np.asarray),
        "gram": Call(SE.gram, {"X": X, "X2": X}, np.asarray),
        "diag": Call(SE.diag, {"X": X}, np.asarray),
        "kernel +": Call(lambda other: SE + other, {"other": M52}, use_kernel),
        "kernel *": Call(lambda other: SE * other, {"other": M52}, use_kernel),
        "means.Constant": Call(means.Constant, {"value": 1.0}, use_mean),
        "means.Linear": Call(means.Linear, {"weights": [1.0], "bias": 0.5}, use_mean),
        "means.Function": Call(means.Function, {"function": lambda x: x[0]}, use_mean),
        "means.Sum": Call(means.Sum, {"first": means.Zero(), "second": means.Constant(1.0)}, use_mean),
        "means.Product": Call(means.Product, {"first": means.Zero(), "second": means.Constant(1.0)}, use_mean),
        "Additive": Call(K.Additive, {"lengthscale": [0.5], "variance": [2.0]}, use_kernel),
        "Categorical": Call(
            K.Categorical, {"correlation": [0.5], "variance": 2.0}, lambda k: np.asarray(k.gram(np.zeros((3, 1))))
        ),
        "SpectralMixture": Call(
            K.SpectralMixture, {"weights": [1.0, 0.5], "means": [[0.5], [1.0]], "scales": [[0.1], [0.2]]}, use_kernel
        ),
        "SpectralMixture.from_data": Call(K.SpectralMixture.from_data, {"X": X, "y": Y, "num": 2}, use_kernel),
        "mean +": Call(lambda other: means.Zero() + other, {"other": means.Constant(1.0)}, use_mean),
    }
    return calls


def some_features() -> dict[str, Call]:
    """Calls of features."""
    se, matern = use_features(SE), use_features(M52)
    return {
        "InducingPoints": Call(F.InducingPoints, {"Z": X[::2]}, matern),
        "InducingDerivatives": Call(F.InducingDerivatives, {"Z": X[::2], "dims": (0, 0, 0)}, se),
        "Fourier": Call(F.Fourier, {"a": -1.0, "b": 1.0, "num": 3}, matern),
        "FreeFourier": Call(F.FreeFourier, {"a": -1.0, "b": 1.0, "frequencies": [1.0, 2.0]}, matern),
        "Multiscale": Call(F.Multiscale, {"Z": X[::2], "widths": np.full((3, 1), 0.1)}, se),
        "EigenLaplacian": Call(
            F.EigenLaplacian, {"box": [(-2.0, 2.0)], "num": 4}, use_features(K.HilbertSpace(SE, [(-2.0, 2.0)], 4))
        ),
        "EigenMercer": Call(F.EigenMercer, {"num": 3, "mean": [0.0], "std": [1.0]}, se),
        "EigenNumerical": Call(F.EigenNumerical, {"Z": X, "num": 3}, matern),
        "BoxFourier": Call(F.BoxFourier, {"frequencies": [[1.0]], **BAND, "nodes": 8}, se),
        "GaussianFourier": Call(F.GaussianFourier, {"frequencies": [[1.0]], "centre": [0.0], "widths": [1.0]}, se),
        "RegionAverage": Call(F.RegionAverage, {"lower": [[-1.0]], "upper": [[1.0]], "nodes": 4}, se),
        "Integral": Call(
            F.Integral, {"phi": lambda x: jnp.stack([jnp.sin(x[0]), jnp.cos(x[0])]), **BAND, "nodes": 8}, se
        ),
        "SphericalHarmonics": Call(F.SphericalHarmonics, {"dim": 3, "degrees": 3}, use_features(K.Spherical(SE))),
        "Padded": Call(F.Padded, {"own": POINTS, "num": 4}, matern),
        "Product": Call(
            F.Product, {"parts": [F.Fourier(-1.0, 1.0, 2), F.Fourier(-1.0, 1.0, 2)]}, use_features(COLUMNS)
        ),
        "Additive": Call(F.Additive, {"parts": [POINTS, POINTS]}, use_features(SE + M52)),
        "Union": Call(F.Union, {"parts": [POINTS, F.InducingDerivatives(X[::2])]}, se),
    }


def some_likelihoods() -> dict[str, Call]:
    """Calls of likelihoods."""
    plain = {
        "Gaussian": ({"variance": 0.1}, 0.5),
        "Bernoulli": ({"link": "probit"}, 1),
        "Beta": ({"scale": 1.0, "link": "probit"}, 0.5),
        "Binomial": ({"total_count": 5, "link": "logit"}, 1),
        "Exponential": ({"link": "exp"}, 0.5),
        "Gamma": ({"shape": 2.0}, 0.5),
        "HeteroscedasticGaussian": ({"link": "exp"}, 0.5),
        "Laplace": ({"scale": 1.0}, 0.5),
        "LogNormal": ({"scale": 1.0}, 0.5),
        "NegativeBinomial": ({"concentration": 1.0}, 1),
        "Ordinal": ({"cutpoints": [0.0, 1.0], "sigma": 1.0}, 1),
        "Poisson": ({"link": "exp", "exposure": 1.0}, 1),
        "RobustMax": ({"num_classes": 3, "epsilon": 0.001}, 1),
        "Softmax": ({"num_classes": 3}, 1),
        "StudentT": ({"df": 4.0, "scale": 1.0}, 0.5),
        "Weibull": ({"shape": 1.0}, 0.5),
        "ZeroInflatedNegativeBinomial": ({"concentration": 1.0, "zero_probability": 0.1}, 1),
        "ZeroInflatedPoisson": ({"zero_probability": 0.1}, 1),
    }
    calls = {name: Call(getattr(L, name), good, use_likelihood(y)) for name, (good, y) in plain.items()}
    return calls | {
        "PerDatum": Call(L.PerDatum, {"values": [0.1, 0.2], "new": 0.1}, use_known_noise),
        "Censored": Call(
            L.Censored,
            {"base": L.Weibull(), "num_outputs": 1, "above": [0.1, 0.1, 0.1, 0.1], "below": None},
            use_likelihood(0.5),
            2.0,
        ),
        "PerOutput": Call(L.PerOutput, {"likelihoods": [L.Gaussian()]}, lambda p: p.num_latents(len(p.likelihoods))),
    }


def some_priors() -> dict[str, Call]:
    """Calls of priors and layers."""
    plain = use_prior(POINTS)
    return {
        "GP": Call(ig.GP, {"kernel": M52, "mean": means.Constant(1.0)}, plain),
        "Independent": Call(priors.Independent, {"latents": [M52, SE], "num": 2, "mean": 0.0}, plain),
        "LMC": Call(priors.LMC, {"W": [[1.0], [2.0]], "latents": [SE], "mean": None}, plain),
        "IntrinsicCoregionalisation": Call(
            priors.IntrinsicCoregionalisation, {"W": [[1.0], [2.0]], "kappa": [1.0, 1.0], "latents": SE}, plain
        ),
        "ConvolutionProcess": Call(
            priors.ConvolutionProcess, {"smoothing": priors.GaussianSmoothing([[0.5]]), "latents": [SE]}, plain
        ),
        "GaussianSmoothing": Call(priors.GaussianSmoothing, {"width": [[0.5]], "amplitude": 1.0}),
        "Derivative": Call(priors.Derivative, {"prior": ig.GP(SE), "dim": 1, "values": False}, plain),
        "Derivative.dims": Call(priors.Derivative, {"prior": ig.GP(SE), "dims": [0, (0, 0)], "values": True}, plain),
        "MatrixValued": Call(
            priors.MatrixValued,
            {"kernel": ROWS, "num_outputs": 2, "mean": 0.0},
            use_prior(F.InducingPoints([[0.0, 0.0], [0.5, 1.0]])),
        ),
        "Stack": Call(priors.Stack, {"priors": [PRIOR, SE]}, plain),
        "as_input": Call(priors.as_input, {"prior": priors.Independent(M52, 2)}),
        "Smoothing": Call(
            priors.Smoothing,
            {"function": lambda t: jnp.ones((1, 1)), "lower": [-1.0], "upper": [1.0], "num": 8},
            lambda s: use_prior(POINTS)(priors.ConvolutionProcess(s, [SE])),
        ),
        "ImageConvolution": Call(
            priors.ImageConvolution,
            {"latents": SE, "image_shape": (3, 3), "patch_shape": (2, 2), "stride": 1, "num": 1},
            use_prior(F.InducingPoints(np.eye(4))),
        ),
        "ExactGP": Call(
            priors.ExactGP, {"prior": PRIOR, "X": X, "y": Y, "noise_variance": 0.1}, lambda p: p.mean(X), 0.5
        ),
        "SparseGP": Call(
            ig.SparseGP,
            {"prior": PRIOR, "features": POINTS, "mean": None, "root": None, "coordinates": "w", "jitter": 1e-6},
            use_layer,
            3.0,
        ),
        "BayesianDense": Call(
            ig.BayesianDense,
            {"num_inputs": 1, "num_outputs": 2, "key": KEY, "full": False, "scale": 0.05, "prior_mean": 0.0},
            use_layer,
            2.0,
        ),
        "Deterministic": Call(
            ig.Deterministic, {"function": jnp.tanh}, lambda d: use_model(ig.Model([d, LAYER], L.Gaussian()))
        ),
        "Skip": Call(
            ig.Skip, {"layers": LAYER}, lambda s: use_model(ig.Model([s, ig.BayesianDense(2, 1)], L.Gaussian()))
        ),
        "LatentVariable": Call(
            ig.LatentVariable,
            {"dim": 1, "encoder": None, "mean": None, "scale": None},
            lambda v: use_model(
                ig.Model([v, ig.SparseGP(ig.GP(SE), F.InducingPoints(np.eye(2, 1 + v.dim)))], L.Gaussian())
            ),
        ),
        "PerDatumEncoder": Call(layers.PerDatumEncoder, {"mean": X, "scale": 1.0, "full": False}),
        "Model": Call(ig.Model, {"layers": LAYER, "likelihood": L.Gaussian()}, use_model, 3.0),
    }
