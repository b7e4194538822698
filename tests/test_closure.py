"""Every part works with every other part: the product of features, priors, likelihoods, coordinates and depth.

Each combination is built and its bound and gradient are traced (shapes and dtypes, no numbers; what the numbers are is
the matter of other tests). What is refused is refused when the model is built, and is listed here by name.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.parameters import partition

from .features.cases import CASES

N = 3


def _image(kernel, dim):
    return ig.priors.ImageConvolution(kernel, (1, dim + 1), (1, dim))


PRIORS = {
    "GP": lambda k, dim: ig.GP(k),
    "Independent": lambda k, dim: ig.priors.Independent(ig.GP(k), num=2),
    "Independent, separate": lambda k, dim: ig.priors.Independent([ig.GP(k), ig.GP(k)]),
    "LMC": lambda k, dim: ig.priors.LMC(np.ones((3, 2)), ig.GP(k)),
    "IntrinsicCoregionalisation": lambda k, dim: ig.priors.IntrinsicCoregionalisation([1.0, 2.0], [0.1, 0.2], k),
    "ConvolutionProcess": lambda k, dim: ig.priors.ConvolutionProcess(
        ig.priors.GaussianSmoothing(width=[[0.1], [0.5]]), k
    ),
    "ImageConvolution": _image,
    "Derivative": lambda k, dim: ig.priors.Derivative(ig.GP(k), dim=dim),
    "as_input": lambda k, dim: ig.priors.as_input(ig.priors.LMC(np.ones((3, 2)), ig.GP(k))),
}


def inputs(prior: str, X: np.ndarray) -> np.ndarray:
    """Inputs that a prior takes, made from those of its features."""
    X = X[:N]
    if prior == "ImageConvolution":
        return np.concatenate([X, X[:, :1]], axis=1)
    if prior == "as_input":
        return np.concatenate([X, np.arange(N)[:, None] % 3], axis=1)
    return X


def bound_is_traced(model: ig.Model, X: np.ndarray, y: np.ndarray) -> None:
    """The bound of the model is a real number, and so is its derivative by every parameter."""
    parts = partition(model)
    data = ig.Data(X, y)

    def bound(free):
        return ig.elbo(eqx.tree_at(lambda p: p.free, parts, free).model(), data, key=jax.random.key(0))

    value, gradient = jax.eval_shape(jax.value_and_grad(bound), parts.free)
    assert value.shape == () and value.dtype == jnp.float64
    assert [g.shape for g in gradient] == [f.shape for f in parts.free]


def stack(features, prior, deep: bool) -> tuple[ig.Model, int]:
    layers = [ig.SparseGP(prior, features)]
    if deep:
        Z = np.random.default_rng(0).standard_normal((4, prior.num_outputs))
        layers.append(ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(Z)))
    return ig.Model(layers, ig.likelihoods.Gaussian(0.1)), 1 if deep else prior.num_outputs


def draw_is_traced(gp: ig.SparseGP, X: np.ndarray) -> None:
    """A function of the layer, by pathwise conditioning, has a value of each output."""
    f = jax.eval_shape(lambda key: gp.draw(key, 8, X.shape[1])(jnp.asarray(X)), jax.random.key(0))
    assert f.shape == (len(X), gp.prior.num_outputs)


REFUSED = {("fourier 1/2", "Derivative"): "no derivative in mean square"}
INNER = ("points", "fourier 3/2", "additive")  # walked deep and drawn with all priors; the others with one


def _pairs():
    """Every kind of feature with every prior; of those that are not walked deep, every fourth one by default."""
    for i, features in enumerate(CASES):
        for j, prior in enumerate(PRIORS):
            first = prior == "GP" or features in INNER or (features, prior) in REFUSED or (i + j) % 4 == 0
            yield pytest.param(features, prior, marks=[] if first else [pytest.mark.slow])


@pytest.mark.parametrize(("features", "prior"), list(_pairs()))
def test_features_priors_depth(features, prior):
    f, kernel, X = CASES[features]

    def build(deep):
        return stack(f, PRIORS[prior](kernel, X.shape[1]), deep)

    if (features, prior) in REFUSED:
        with pytest.raises(TypeError, match=REFUSED[features, prior]):
            build(deep=False)
        return
    for deep in (False, True) if prior == "GP" or features in INNER else (False,):
        model, width = build(deep)
        bound_is_traced(model, inputs(prior, X), np.zeros((N, width)))
        if deep:
            draw_is_traced(model.layers[0], inputs(prior, X))


ROUGH, SMOOTH = ig.kernels.Matern12(), ig.kernels.Matern52()
FOURIER, POINTS = ig.features.Fourier(-1.0, 1.0, 1), ig.features.InducingPoints([[0.0], [0.2], [0.5]])
LATENTS = {  # kernels and features of two latents; None is accepted
    "kernels of two kinds": ((ROUGH, SMOOTH), POINTS, None),
    "low-rank parts of two sizes": ((ROUGH, SMOOTH), FOURIER, None),
    "kronecker of two sizes": (
        [ig.kernels.ActiveDims(ROUGH, (0,)) * ig.kernels.ActiveDims(k, (1,)) for k in (ROUGH, SMOOTH)],
        ig.features.Product((FOURIER, FOURIER)),
        None,
    ),
    "dense by unions": ((ROUGH, SMOOTH), [ig.features.Union((FOURIER,)), POINTS], None),
    "features of two kinds": ((ROUGH, SMOOTH), [FOURIER, POINTS], r"different structures.*Union\(\(own,\)\)"),
    "features of two numbers": (
        (ROUGH, SMOOTH),
        [FOURIER, ig.features.InducingPoints([[0.0], [0.2]])],
        None,
    ),
}


@pytest.mark.parametrize("name", LATENTS)
def test_latents_of_different_kinds(name):
    kernels, features, refused = LATENTS[name]
    prior = ig.priors.LMC(np.ones((3, 2)), kernels)
    if refused:
        with pytest.raises((TypeError, ValueError), match=refused):
            ig.SparseGP(prior, features)
        return
    model, X = ig.Model(ig.SparseGP(prior, features), ig.likelihoods.Gaussian(0.1)), np.zeros((N, 2))
    X = X if "kronecker" in name else X[:, :1]
    bound_is_traced(model, X, np.zeros((N, 3)))
    draw_is_traced(model.layers[0], X)


L = ig.likelihoods
LIKELIHOODS = {
    "Gaussian": (L.Gaussian(), 2, 0.3),
    "Gaussian, known noise": (L.Gaussian(L.PerDatum(np.ones(N), new=0.1)), 2, 0.3),
    "HeteroscedasticGaussian": (L.HeteroscedasticGaussian(), 1, 0.3),
    "StudentT": (L.StudentT(), 2, 0.3),
    "Laplace": (L.Laplace(), 2, 0.3),
    "LogNormal": (L.LogNormal(), 2, 0.3),
    "Gamma": (L.Gamma(), 2, 0.3),
    "Exponential": (L.Exponential(), 2, 0.3),
    "Beta": (L.Beta(), 2, 0.3),
    "Weibull": (L.Weibull(), 2, 0.3),
    "Bernoulli": (L.Bernoulli(), 2, 1.0),
    "Binomial": (L.Binomial(5), 2, 1.0),
    "Poisson": (L.Poisson(), 2, 1.0),
    "NegativeBinomial": (L.NegativeBinomial(), 2, 1.0),
    "ZeroInflatedPoisson": (L.ZeroInflatedPoisson(), 2, 1.0),
    "ZeroInflatedNegativeBinomial": (L.ZeroInflatedNegativeBinomial(), 2, 1.0),
    "Ordinal": (L.Ordinal([-0.5, 0.5]), 2, 1.0),
    "Softmax": (L.Softmax(3), 1, 1.0),
    "RobustMax": (L.RobustMax(3), 1, 1.0),
    "PerOutput": (L.PerOutput([L.Gaussian(), L.Bernoulli()]), 2, 1.0),
}
OUTPUTS = {
    "Independent": lambda P: ig.priors.Independent(ig.kernels.Matern52(), num=P),
    "LMC": lambda P: ig.priors.LMC(np.ones((P, 2)), ig.kernels.Matern52()),
}


@pytest.mark.parametrize("prior", OUTPUTS)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_likelihoods_priors_missing_labels(likelihood, prior):
    lik, P, label = LIKELIHOODS[likelihood]
    gp = ig.SparseGP(OUTPUTS[prior](lik.num_latents(P)), ig.features.InducingPoints([[0.0], [1.0]]))
    y = np.full((N, P), label)
    y[0, 0] = np.nan
    bound_is_traced(ig.Model(gp, lik), np.linspace(0.0, 1.0, N), y)


def _triples():
    """Coordinates, roots and priors; by default so many that each pair of two of them is met."""
    for i, prior in enumerate(("Independent", "LMC", "ConvolutionProcess", "Derivative")):
        for j, root in enumerate(("full", "diagonal", "coupled")):
            for k, coordinates in enumerate("uvw"):
                marks = [pytest.mark.slow] if (i + j + k) % 3 else []
                yield pytest.param(coordinates, root, prior, marks=marks)


@pytest.mark.parametrize(("coordinates", "root", "prior"), list(_triples()))
def test_coordinates_roots_priors_depth(coordinates, root, prior):
    kernel = ig.kernels.SquaredExponential()
    p = PRIORS[prior](kernel, 2)
    roots = {"full": np.stack([np.eye(3)] * p.num_latents), "diagonal": np.ones((p.num_latents, 3))}
    chosen = np.eye(3 * p.num_latents) if root == "coupled" else roots[root]
    f = ig.features.InducingPoints(np.random.default_rng(0).standard_normal((3, 2)))
    gp = ig.SparseGP(p, f, root=chosen, coordinates=coordinates)
    X = np.random.default_rng(1).standard_normal((N, 2))
    bound_is_traced(ig.Model(gp, L.Gaussian()), X, np.zeros((N, p.num_outputs)))
    last = ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(np.zeros((1, p.num_outputs))))
    bound_is_traced(ig.Model([gp, last], L.Gaussian()), X, np.zeros(N))
