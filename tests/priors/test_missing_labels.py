"""Missing labels, wrong inputs, and the cost of many outputs."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.checks import checked_data
from inducing.layers.sparse_gp_arguments import (
    checked_features,  # SparseGP's own argument is checked by its type in tests
)

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.uniform(-1, 1, (8, 1)))
Z = ig.features.InducingPoints(jnp.linspace(-1, 1, 3)[:, None])
K = ig.kernels.SquaredExponential


def model_of(prior, likelihood, features=Z):
    return ig.Model(ig.SparseGP(prior, features), likelihood)


L = ig.likelihoods
REALS, POSITIVE, SHARES = RNG.normal(size=(8, 2)), RNG.gamma(2.0, size=(8, 2)), RNG.uniform(0.1, 0.9, (8, 2))
COUNTS, BITS = RNG.integers(0, 5, (8, 2)).astype(float), RNG.integers(0, 2, (8, 2)).astype(float)
CLASSES = RNG.integers(0, 3, (8, 1)).astype(float)
TWO = ig.priors.LMC([[1.0], [2.0]], K())
PAIRS = ig.features.InducingPoints(np.array([[-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))  # rows (x, category)
CATEGORIES = ig.kernels.ActiveDims(K(), (0,)) * ig.kernels.ActiveDims(
    ig.kernels.Coregion([[1.0], [2.0]], [0.5, 0.5]), (1,)
)
LIKELIHOODS = {
    "Gaussian": (L.Gaussian(0.1), REALS),
    "Gaussian, known noise": (L.Gaussian(L.PerDatum(RNG.uniform(0.1, 0.5, (8, 2)), new=0.1)), REALS),
    "HeteroscedasticGaussian": (L.HeteroscedasticGaussian(), REALS),
    "StudentT": (L.StudentT(), REALS),
    "Laplace": (L.Laplace(), REALS),
    "LogNormal": (L.LogNormal(), POSITIVE),
    "Gamma": (L.Gamma(), POSITIVE),
    "Exponential": (L.Exponential(), POSITIVE),
    "Weibull": (L.Weibull(), POSITIVE),
    "Beta": (L.Beta(), SHARES),
    "Bernoulli": (L.Bernoulli(), BITS),
    "Binomial": (L.Binomial(5), COUNTS),
    "Poisson": (L.Poisson(), COUNTS),
    "NegativeBinomial": (L.NegativeBinomial(), COUNTS),
    "ZeroInflatedPoisson": (L.ZeroInflatedPoisson(), COUNTS),
    "ZeroInflatedNegativeBinomial": (L.ZeroInflatedNegativeBinomial(), COUNTS),
    "Ordinal": (L.Ordinal([-0.5, 0.5]), np.minimum(COUNTS, 2.0)),
    "Softmax": (L.Softmax(3), CLASSES),
    "RobustMax": (L.RobustMax(3), CLASSES),
    "PerOutput": (L.PerOutput([L.Gaussian(), L.Bernoulli()]), np.stack([REALS[:, 0], BITS[:, 1]], axis=1)),
    "PerOutput, joint": (L.PerOutput([L.HeteroscedasticGaussian(), L.Softmax(3)]), np.hstack([REALS[:, :1], CLASSES])),
}


def test_the_list_of_likelihoods_is_complete():
    concrete = {n for n in dir(L) if isinstance(v := getattr(L, n), type) and issubclass(v, L.AbstractLikelihood)}
    tested = {type(likelihood).__name__ for likelihood, _ in LIKELIHOODS.values()}
    censored = {"Censored"}  # whose labels are pairs of bounds: tests/likelihoods/test_censored.py
    assert {n for n in concrete if not n.startswith("Abstract")} - censored == tested


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_missing_label_changes_nothing_but_its_own_term(name):
    """By NaN or by the mask: the bound is that of the remaining labels, added up row by row, with finite gradients."""
    likelihood, y = LIKELIHOODS[name]
    P = y.shape[1]
    F = likelihood.num_latents(P)
    seen = np.ones((8, P), bool)
    seen[2, 0] = seen[4, -1] = False
    seen[5] = False
    model = model_of(ig.priors.LMC(np.linspace(-1.0, 1.5, F)[:, None], K()), likelihood)
    model = eqx.tree_at(lambda m: m.layers[0].mean, model, jnp.array([[0.3, -0.5, 0.8]]))

    @eqx.filter_jit
    def values(model, y, seen):
        data = ig.Data(X, y, mask=seen)
        mean, cov = model.layers[0].moments(X[:, None], likelihood.joint)
        terms = likelihood.expected_log_prob(mean[:, 0], cov[:, 0], y, index=data.index)
        return *eqx.filter_value_and_grad(lambda m: ig.elbo(m, data))(model), terms, model.kl()

    bound, gradient, terms, kl = values(model, jnp.asarray(y), jnp.asarray(seen))
    np.testing.assert_allclose(bound, np.asarray(terms)[seen].sum() - kl, rtol=1e-10)
    hidden, gradient_hidden, *_ = values(model, jnp.asarray(np.where(seen, y, np.nan)), jnp.ones((8, P), bool))
    np.testing.assert_allclose(hidden, bound, rtol=1e-12)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(gradient_hidden), strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_collapsed_bound_and_evidence_have_finite_gradients():
    y = jnp.asarray(RNG.normal(size=(8, 2))).at[2, 0].set(jnp.nan).at[5, :].set(jnp.nan)
    model = model_of(ig.priors.LMC([[1.0], [-0.5]], K()), ig.likelihoods.Gaussian(jnp.array([0.1, 0.2])))

    @eqx.filter_jit
    def gradients(model):
        return [eqx.filter_grad(lambda m, f=f: f(m, (X, y)))(model) for f in (ig.collapsed_elbo, ig.log_evidence)]

    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients(model)))


def test_an_output_without_labels_keeps_its_prior_or_follows_the_others():
    y = jnp.asarray(RNG.normal(size=(8, 2))).at[:, 1].set(jnp.nan)

    @eqx.filter_jit
    def predict(prior):
        return ig.collapse(model_of(prior, ig.likelihoods.Gaussian(0.1)), (X, y)).layers[0].marginals(X)

    mean, variance = predict(ig.priors.Independent(K(), num=2))
    np.testing.assert_allclose(mean[:, 1], 0.0, atol=1e-12)
    np.testing.assert_allclose(variance[:, 1], 1.0, rtol=1e-10)
    mean, _ = predict(ig.priors.LMC([[1.0], [-0.5]], K()))
    np.testing.assert_allclose(mean[:, 1], -0.5 * mean[:, 0], rtol=1e-10)


def _largest(jaxpr) -> int:
    """The size of the largest array that a computation makes."""
    sizes = [int(np.prod(v.aval.shape)) for e in jaxpr.eqns for v in e.outvars if hasattr(v.aval, "shape")]
    for e in jaxpr.eqns:
        for value in e.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    sizes.append(_largest(inner))
    return max(sizes, default=0)


@pytest.mark.parametrize("objective", [ig.elbo, ig.collapsed_elbo])
def test_memory_of_many_outputs_is_that_of_the_labels(objective):
    """200 outputs of 3 latents: nothing is larger than the labels, forwards or backwards."""
    N, P, L, M = 400, 200, 3, 20
    prior = ig.priors.LMC(RNG.normal(size=(P, L)), [K(0.5), K(1.0), K(2.0)])
    features = ig.features.InducingPoints(jnp.linspace(-1, 1, M)[:, None])
    model = ig.Model(ig.SparseGP(prior, features), ig.likelihoods.Gaussian(0.1))
    data = (jnp.linspace(-1, 1, N)[:, None], jnp.zeros((N, P)))
    jaxpr = jax.make_jaxpr(lambda m: eqx.filter_grad(lambda m: objective(m, data))(m))(model)
    assert _largest(jaxpr.jaxpr) <= N * P


def test_memory_of_images_is_that_of_a_block(monkeypatch):
    """Neither the N·I·M covariances of patches with features nor the N·I² among patches are held at once."""
    N, I, M, block = 60, 25, 10, 2500
    monkeypatch.setattr("inducing.priors.image.BLOCK_ENTRIES", block)
    prior = ig.priors.ImageConvolution(K(), (6, 6), (2, 2), weights=True)
    features = ig.features.InducingPoints(jnp.asarray(RNG.normal(size=(M, 4))))
    model = ig.Model(ig.SparseGP(prior, features), ig.likelihoods.Gaussian(0.1))
    data = (jnp.asarray(RNG.normal(size=(N, 36))), jnp.zeros((N, 1)))
    jaxpr = jax.make_jaxpr(lambda m: eqx.filter_grad(lambda m: ig.elbo(m, data))(m))(model)
    assert _largest(jaxpr.jaxpr) <= 4 * block < N * I * M  # 4 pixels of a patch


@pytest.mark.parametrize("objective", [ig.elbo, ig.log_evidence])
def test_memory_of_rows_is_that_of_a_block(objective, monkeypatch):
    """Rows (x, p) of six smoothed outputs: of the covariances of all sites only those of a block are held."""
    N, P, M, block = 200, 6, 20, 8000
    monkeypatch.setattr(sys.modules[ig.priors.as_input.__module__], "BLOCK_ENTRIES", block)
    smoothing = ig.priors.GaussianSmoothing(np.ones((P, 1)))
    prior = ig.priors.as_input(ig.priors.ConvolutionProcess(smoothing, K()))
    features = ig.features.InducingPoints(jnp.linspace(-1, 1, M)[:, None])
    model = ig.Model(ig.SparseGP(prior, features), ig.likelihoods.Gaussian(0.1))
    data = (np.stack([np.linspace(-1, 1, N), np.arange(N) % P], axis=1), jnp.zeros(N))
    jaxpr = jax.make_jaxpr(lambda m: eqx.filter_grad(lambda m: objective(m, data))(m))(model)
    assert _largest(jaxpr.jaxpr) <= max(block, N * N if objective is ig.log_evidence else 0)
    assert block < N * P * M  # of Kuf; of Kff there would be N²·P²


SQUARE = ig.priors.Smoothing(lambda t: jnp.stack([t.sum(), jnp.ones(())])[:, None], [0.0, 0.0], [1.0, 0.5], num=4)
OVER_SQUARE = ig.priors.ConvolutionProcess(SQUARE, K()), ig.features.InducingPoints(RNG.uniform(-1, 1, (5, 2)))
PLACES = jnp.asarray(RNG.uniform(-1, 1, (7, 2)))


def over_square():
    """Kuf, Kff and a draw of a process that is integrated over 16 nodes, in whatever blocks."""
    prior, features = OVER_SQUARE
    return (
        prior.Kuf(features, PLACES),
        prior.Kff(PLACES, PLACES[:6]),
        prior.draw_latents(jax.random.key(0), 10, 2)[1](PLACES),
    )


def test_memory_of_an_integral_is_that_of_a_block(monkeypatch):
    """And blocks do not change the numbers."""
    whole, block = jax.jit(over_square)(), 4 * 2 * 10 * 16  # four rows of a draw, eight of Kuf
    monkeypatch.setattr("inducing.priors.convolution.BLOCK_ENTRIES", block)
    for got, expected in zip(jax.jit(lambda: over_square())(), whole, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert _largest(jax.make_jaxpr(lambda: over_square())().jaxpr) <= block < 7 * 2 * 10 * 16


def test_memory_of_a_drawn_image_is_that_of_a_block(monkeypatch):
    images, prior = jnp.asarray(RNG.normal(size=(5, 16))), ig.priors.ImageConvolution(K(), (4, 4), (2, 2), num=2)

    def draw():
        return prior.draw_latents(jax.random.key(0), 10, 16)[1](images)

    whole, block = jax.jit(draw)(), 2 * 9 * 2 * 10  # two images
    monkeypatch.setattr("inducing.priors.image.BLOCK_ENTRIES", block)
    np.testing.assert_allclose(jax.jit(lambda: draw())(), whole, rtol=1e-12)
    assert _largest(jax.make_jaxpr(lambda: draw())().jaxpr) <= block < 5 * 9 * 2 * 10


def test_rows_in_blocks_are_the_rows_of_the_other_view(monkeypatch):
    monkeypatch.setattr(sys.modules[ig.priors.as_input.__module__], "BLOCK_ENTRIES", 36)
    prior = ig.priors.ConvolutionProcess(ig.priors.GaussianSmoothing([[0.2, 0.5], [0.6, 0.3]]), [K(0.7), K(0.4)])
    n, p = np.array([0, 1, 1, 4, 7]), np.array([1, 0, 1, 0, 1])
    rows = jnp.concatenate([X[n], jnp.asarray(p, float)[:, None]], axis=1)

    @eqx.filter_jit
    def both(prior):
        view = ig.priors.as_input(prior)
        u, v = prior.Kuf(Z, X), view.Kuf(Z, rows)  # [2, 3, 8, 2] and [2, 3, 5, 1]
        return (prior.covariance(X), u), (view.covariance(rows), v)

    (cov, u), (row_cov, v) = both(prior)
    np.testing.assert_allclose(row_cov, cov[np.ix_(2 * n + p, 2 * n + p)], rtol=1e-12)
    np.testing.assert_allclose(v[..., 0], np.asarray(u)[:, :, n, p], rtol=1e-12)


def test_shared_kernels_are_computed_once():
    prior = ig.priors.Independent(K(), num=5)
    assert prior.Kuf(Z, X).shape == (1, 3, 8, 1)
    assert jax.tree.leaves(prior.Kuu(Z, 0.0))[0].shape[0] == 1


def test_image_blocks_do_not_change_the_numbers(monkeypatch):
    images = jnp.asarray(RNG.normal(size=(5, 16)))
    patches = ig.features.InducingPoints(jnp.asarray(RNG.normal(size=(3, 4))))
    prior = ig.priors.ImageConvolution(K(), (4, 4), (2, 2), weights=True)

    def values():
        return jax.jit(lambda: (prior.Kuf(patches, images), prior.Kff_diag(images), prior.Kff(images)))()

    whole = values()
    monkeypatch.setattr("inducing.priors.image.BLOCK_ENTRIES", 2 * 9 * 9)  # two images at a time
    for a, b in zip(values(), whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_slopes_alone_give_the_landscape():
    """All labels of a value may be missing if some of its derivatives were seen."""
    prior = ig.priors.Derivative(ig.GP(K()), dim=1, values=True)
    Z = ig.features.InducingPoints(jnp.linspace(-1, 1, 6)[:, None])
    labels = np.concatenate([np.full((8, 1), np.nan), np.cos(X)], axis=1)
    model = ig.Model(ig.SparseGP(prior, Z), ig.likelihoods.Gaussian(1e-4))
    model = ig.fit(model, (X, labels), steps=20, progress=False).model
    f = np.asarray(model.posterior(np.array([[-0.7], [0.7]])).mean)[:, 0]
    np.testing.assert_allclose(f[1] - f[0], 2 * np.sin(0.7), rtol=1e-2)
    with pytest.raises(ValueError, match="every label in column 0"):
        ig.fit(model_of(ig.priors.Independent([K(), K()]), ig.likelihoods.Gaussian()), (X, labels), progress=False)


def test_patches_without_labels_are_those_of_a_latent_that_has_some():
    prior = ig.priors.ImageConvolution(K(), (2, 3), (2, 2), num=2)
    model = model_of(prior, ig.likelihoods.Gaussian(), ig.features.InducingPoints(np.eye(4)))
    labels = np.zeros((8, 4))
    labels[:, [0, 3]] = np.nan  # the first patch of the first latent, the second of the second
    images = RNG.normal(size=(8, 6))
    checked_data(model, (images, labels), every_output=True)
    labels[:, 2] = np.nan
    with pytest.raises(ValueError, match="every label in column 2"):
        checked_data(model, (images, labels), every_output=True)


def rough_matrix():
    """A matrix-valued kernel of paths without derivatives, in the output-as-input view."""
    kernel = ig.priors.as_input(ig.priors.LMC([[1.0], [2.0]], ig.kernels.Matern12())).kernel
    return ig.priors.MatrixValued(kernel, num_outputs=2)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: ig.priors.LMC([1.0, 2.0], K()), "W must be"),
        (lambda: ig.priors.LMC([[1.0, 2.0]], [K()]), "2 columns but there are 1 latents"),
        (lambda: ig.priors.Independent(K()), "num is missing"),
        (lambda: ig.priors.Independent([K(), K()], num=3), "num is 3"),
        (lambda: ig.priors.Independent([K(), 1.0]), "must be GPs"),
        (lambda: ig.priors.IntrinsicCoregionalisation([1.0, 2.0], [1.0], K()), "kappa"),
        (lambda: ig.priors.ImageConvolution(K(), (5, 5), (2, 2), stride=2), "do not cover"),
        (lambda: ig.priors.ImageConvolution(K(), (4, 4), (2, 2), weights=[1.0, 2.0]), "each of the 9 patches"),
        (lambda: ig.priors.ImageConvolution(K(), (4, 4), (2, 2)).patches(jnp.zeros((1, 15))), "needs 16"),
        (lambda: ig.priors.GaussianSmoothing([1.0, 2.0]), "width"),
        (lambda: ig.priors.ConvolutionProcess(ig.priors.GaussianSmoothing([[1.0]]), [K(), K()]), "1 columns"),
        (lambda: ig.priors.ConvolutionProcess(ig.priors.GaussianSmoothing([[1.0]]), K([1.0, 2.0])).covariance(X),
         "lengthscale has 2 entries but the inputs have 1"),
        (lambda: ig.priors.Derivative(ig.GP(ig.kernels.Matern12()), dim=1), "no derivative"),
        (lambda: ig.priors.Derivative(ig.priors.Derivative(ig.GP(ig.kernels.Matern32()), 1), 1), "no derivative"),
        (lambda: ig.priors.Smoothing(lambda t: jnp.ones((2, 1)), [0.0, 1.0], [1.0, 0.5]), "lower < upper"),
        (lambda: ig.priors.Derivative(rough_matrix(), dim=1), "no derivative"),
        (lambda: ig.priors.as_input(ig.priors.LMC([[1.0]], K())).mean(jnp.array([[0.0, 1.0]])), "from 0 to 0"),
        (lambda: ig.priors.Independent(K(), num=3, mean=ig.means.Identity()).mean(X), "1 columns but"),
        (lambda: ig.GP(K()).condition(X, jnp.zeros((8, 2)), 0.1), "2 columns"),
        (lambda: ig.collapsed_elbo(model_of(ig.GP(K()), ig.likelihoods.Gaussian()), (X, jnp.zeros((8, 2)))), "columns"),
        (lambda: ig.fit(model_of(ig.GP(K()), ig.likelihoods.Gaussian()), (X, jnp.zeros((8, 2)))), "y has 2 columns"),
        (lambda: ig.priors.LMC(np.zeros((0, 2)), K()), "W must be"),
        (lambda: ig.priors.LMC([[1.0]], TWO), "W has 1 columns but there are 2 latents"),
        (lambda: ig.priors.Independent(K(), num=0), "num must be an integer of at least 1, got 0"),
        (lambda: ig.priors.MatrixValued(K(), 0), "num_outputs must be an integer of at least 1, got 0"),
        (lambda: ig.priors.MatrixValued(ig.priors.as_input(TWO).kernel, 3).covariance(X), "from 0 to 1"),
        (lambda: model_of(ig.priors.MatrixValued(ig.priors.as_input(TWO).kernel, 3), L.Gaussian(), PAIRS).predict(X),
         "holds 2.0; .* from 0 to 1"),
        (lambda: model_of(ig.priors.as_input(ig.priors.LMC([[1.0]], CATEGORIES)), L.Gaussian(), PAIRS).predict(
            np.array([[0.3, 2.0, 0.0]])), "Coregion's input must .* got 2.0"),
        (lambda: ig.priors.ImageConvolution([K(), K()], (4, 4), (2, 2), num=3), "2 GPs but num is 3"),
        (lambda: ig.priors.Derivative(ig.GP(K()), dim=0), "dim must be an integer"),
        (lambda: model_of(TWO, L.Softmax(3)), "gives 2 latent functions, a number that Softmax cannot use"),
        (lambda: model_of(TWO, L.PerOutput([L.Gaussian()])), "gives 2 .* PerOutput cannot use"),
        (lambda: ig.fit(model_of(TWO, L.Gaussian([0.1, 0.2, 0.3])), (X, REALS)), "3 values, but the number"),
        (lambda: model_of(TWO, L.Gaussian([0.1, 0.2, 0.3])).predict(X).mean, "3 values, but the number"),
        (lambda: ig.priors.LMC([[1.0], [2.0, 3.0]], K()), "rows of equal length"),
        (lambda: ig.priors.LMC([["a"]], K()), "W must be an array of numbers"),
        (lambda: ig.priors.LMC(None, K()), "W must be"),
        (lambda: ig.priors.IntrinsicCoregionalisation(None, [1.0], K()), "W must be an array"),
        (lambda: ig.priors.IntrinsicCoregionalisation(np.zeros((0, 1)), np.zeros(0), K()), "W of shape"),
        (lambda: ig.priors.GaussianSmoothing(np.zeros((0, 1))), "width"),
        (lambda: ig.priors.Smoothing(lambda t: jnp.ones((2, 1)), [0.0], [1.0], num=0), "Smoothing.num must be"),
        (lambda: ig.priors.Smoothing(lambda t: jnp.ones((2, 1)), None, None), "lower must be numbers, got None"),
        (lambda: ig.priors.Smoothing(lambda t: jnp.ones((2, 1)), [-np.inf], [1.0]), "Smoothing.lower must be real"),
        (lambda: ig.priors.ImageConvolution(K(), (2, 2), (1, 1), weights="ones"), "weights must be numbers"),
        (lambda: ig.priors.Derivative(ig.priors.as_input(TWO), dim=2), r"write as_input\(Derivative\(prior, dim\)\)"),
        (lambda: ig.fit(model_of(ig.priors.as_input(TWO), L.Gaussian()), (X, REALS[:, 0])), r"takes rows \(x, p\)"),
        (lambda: ig.Model([ig.LatentVariable(1), ig.SparseGP(ig.priors.as_input(TWO), PAIRS)], L.Gaussian()),
         r"layers\[1\] takes rows .* the LatentVariable below it puts a random number there; move p"),
        (lambda: ig.Model([ig.LatentVariable(1), ig.Skip(ig.SparseGP(ig.priors.as_input(TWO), PAIRS)), ig.Deterministic(
            jnp.tanh)], L.Gaussian()), r"layers\[1\].layers\[0\] takes rows .* the LatentVariable below it"),
        (lambda: checked_features(K(), TWO), "features must be one ig.features object.* got SquaredExponential"),
    ],
)  # fmt: skip
def test_wrong_input_is_named(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()


def test_shapes_of_images_may_be_arrays():
    prior = ig.priors.ImageConvolution(K(), np.array([4, 4]), np.array([2, 2]), stride=2)
    assert eqx.tree_equal(prior, ig.priors.ImageConvolution(K(), (4, 4), (2, 2), stride=2))


@pytest.mark.parametrize(
    "prior, Z, X",
    [
        (ig.priors.ImageConvolution(K(), (4, 4), (2, 2), weights=True), np.eye(4), np.eye(16)[:3]),
        (ig.priors.as_input(ig.priors.LMC([[1.0], [2.0]], K())), np.eye(2)[:, :1], np.array([[0.3, 0.0], [0.3, 1.0]])),
        (ig.priors.MatrixValued(K(), num_outputs=2), np.array([[0.0, 0.0], [0.0, 1.0]]), np.array([[0.3], [0.4]])),
    ],
    ids=["patches", "rows", "outputs"],
)  # fmt: skip
def test_predictions_at_inputs_unlike_those_of_the_latents(prior, Z, X):
    model = ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(Z)), ig.likelihoods.Gaussian(0.1))
    _, variance = model.layers[0].marginals(jnp.asarray(X))
    np.testing.assert_allclose(model.posterior(X).variance, variance, rtol=1e-10)
    with pytest.raises(ValueError, match="column"):
        model.predict(np.ones((2, 7)))
