"""Sparse GPs against exact ones, coordinates against each other, bounds against the evidence, and hard numerics."""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.bounds import collapsed, rounding, sums
from inducing.bounds.conjugate import Conjugate
from inducing.data import as_data
from inducing.parameters import partition
from inducing.training import lbfgs

K = ig.kernels
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (6, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.3 * RNG.standard_normal((6, 1))
XS = RNG.uniform(-1.2, 1.2, (3, 2))
CATEGORIES = np.array([[0.0], [1.0], [2.0], [0.0], [2.0], [1.0]])


class Brownian(K.AbstractPointKernel):
    """A kernel of one's own."""

    def __call__(self, x, y):
        return jnp.sum(jnp.minimum(x, y)) + 3.0


def _warp(x):
    return jnp.stack([jnp.tanh(x[0]), x[0] * x[1], jnp.sin(x[1])])


# One kernel of each make, and how many of the inputs span it (all, if its Kuu is regular). That the Gram matrices and
# diagonals of each kernel agree, which is all that a sparse GP asks of it, is the matter of the kernels' tests.
KERNELS = {
    "squared exponential": (K.SquaredExponential([0.7, 0.9], 1.3), 6),
    "matern 3/2": (K.Matern32([0.7, 1.1]), 6),
    "periodic": (K.Periodic(K.SquaredExponential(0.6), 1.7), 6),
    "white": (K.White(0.5), 6),
    "arc cosine": (K.ArcCosine(1), 6),
    "sum": (K.Matern32(0.5) + K.Linear(), 6),
    "product": (K.ActiveDims(K.Matern12(0.5), 0) * K.Periodic(K.SquaredExponential()), 6),
    "change point": (K.ChangePoint((K.Matern12(0.5), K.SquaredExponential(0.5)), [0.0], 5.0), 6),
    "warped": (K.Warped(K.Matern52(0.5), _warp), 6),
    "own": (Brownian(), 6),
    "linear": (K.Linear([1.0, 0.5]), 2),
    "constant": (K.Constant(2.0), 1),
    "coregion": (K.Coregion([[1.0], [0.5], [-0.5]], [0.3, 0.4, 0.5]), 3),
}


def _sparse_and_exact(prior, X, Y, Z, XS, noise, jitter):
    """Bound, mean and covariance of the optimal sparse GP, and evidence, mean and covariance of the exact one."""
    exact = prior.condition(X, Y, noise)
    model = ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(Z), jitter=jitter), ig.likelihoods.Gaussian(noise))
    mean, covariance = ig.collapse(model, (X, Y)).layers[0].joint(XS[None])
    sparse = (ig.collapsed_elbo(model, (X, Y)), mean[0], covariance[0])
    return sparse, (exact.log_marginal_likelihood, exact.mean(XS), exact.covariance(XS))


_compiled = eqx.filter_jit(_sparse_and_exact)
# At level 0, which tests compile with, XLA gets an arcsin wrong.
_compiled_with_arcsin = eqx.filter_jit(_sparse_and_exact, compiler_options={"xla_backend_optimization_level": 1})


def _compare(prior, x, y, z, xs, jitter=0.0, rtol=1e-6, compiled=_compiled):
    arguments = (jnp.asarray(a) for a in (x, y, z, xs, 0.1))
    for got, expected in zip(*compiled(prior, *arguments, jitter), strict=True):
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", KERNELS)
def test_sparse_is_exact_when_the_features_span_the_data(name):
    """At Z = X (or M = rank), the optimal q(u) gives the exact posterior, and the bound is the evidence."""
    kernel, rank = KERNELS[name]
    x, xs = (CATEGORIES, CATEGORIES[:3]) if name == "coregion" else (X, XS)
    compiled = _compiled_with_arcsin if name == "arc cosine" else _compiled
    _compare(ig.GP(kernel, ig.means.Constant(0.4)), x, Y, x[:rank], xs, compiled=compiled)


def _gp(coordinates="w", root=None, seed=1, M=4, jitter=0.0):
    rng = np.random.default_rng(seed)
    root = np.tril(0.4 * rng.standard_normal((M, M))) + 0.6 * np.eye(M) if root is None else root
    prior = ig.GP(K.Matern32([0.7, 0.9], 1.4), ig.means.Linear(np.ones((2, 1)), np.ones(1)))
    return ig.SparseGP(prior, ig.features.InducingPoints(X[:M]), rng.standard_normal(M), root, coordinates, jitter)


@eqx.filter_jit
def _views(gp):
    model = ig.Model(gp, ig.likelihoods.Bernoulli())
    x = jnp.asarray(XS)
    return ig.elbo(model, (X, Y > 0)), gp.kl(), *gp.marginals(x), *gp.joint(x[None])


@pytest.mark.parametrize("start", ["u", "v", "w"])
@pytest.mark.parametrize("diagonal", [False, True])
def test_coordinates_describe_the_same_process(start, diagonal):
    """Bound, KL, marginals and joint moments do not depend on the coordinates of q(u)."""
    gp = _gp(start, np.array([0.5, 0.8, 1.2, 0.3]) if diagonal else None)
    reference = _views(gp)
    for other in ("u", "v", "w"):
        converted = gp.with_coordinates(other)
        assert converted.coordinates == other
        for got, expected in zip(_views(converted), reference, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10)


def test_its_own_coordinates_leave_a_layer_as_it_is():
    """So a Kronecker root of many features stays one: as a full root it would have M² entries."""
    kernel = K.ActiveDims(K.Matern52(), 0) * K.ActiveDims(K.Matern52(), 1)
    features = ig.features.Product((ig.features.InducingPoints([[0.0], [1.0]]),) * 2)
    gp = ig.SparseGP(ig.GP(kernel), features, root=(0.5 * np.eye(2), np.eye(2)))
    assert gp.with_coordinates("w") is gp


def test_the_optimal_root_is_lower_triangular():
    root = ig.collapse(ig.Model(_gp("w"), ig.likelihoods.Gaussian(0.1)), (X, Y)).layers[0].root
    np.testing.assert_array_equal(root, np.tril(root))
    assert bool((jnp.diagonal(root, axis1=1, axis2=2) > 0).all())


def test_u_is_the_value_at_the_inducing_inputs():
    """In the coordinates u, mean and root are those of f(Z)."""
    gp = _gp("u")
    mean, cov = gp.joint(jnp.asarray(X[:4])[None])
    np.testing.assert_allclose(mean[0, :, 0], gp.mean[0], rtol=1e-9)
    np.testing.assert_allclose(cov[0], gp.root[0] @ gp.root[0].T, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("coordinates", ["u", "v", "w"])
def test_kl_is_that_of_the_processes(coordinates):
    """KL(q(f_grid) ‖ p(f_grid)) on any grid that contains Z is KL(q(u) ‖ p(u)), by NumPy on the grid."""
    gp = _gp(coordinates)
    for extra in (0, 3):
        grid = jnp.asarray(np.concatenate([X[:4], XS[:extra]]))
        mean, S = (np.asarray(a[0]) for a in gp.joint(grid[None]))
        P = np.asarray(gp.prior.covariance(grid))
        d = mean[:, 0] - np.asarray(gp.prior.mean(grid))[:, 0]
        P1 = np.linalg.inv(P)
        logs = np.linalg.slogdet(P)[1] - np.linalg.slogdet(S)[1]
        kl = 0.5 * (np.trace(P1 @ S) + d @ P1 @ d - len(grid) + logs)
        np.testing.assert_allclose(gp.kl(), kl, rtol=1e-7)


@eqx.filter_jit
def _collapsed(model, x, y):
    optimal = ig.collapse(model, (x, y))
    bound = ig.collapsed_elbo(model, (x, y))
    return bound, optimal, ig.elbo(optimal, (x, y)), ig.log_evidence(model, (x, y))


@eqx.filter_jit
def _elbo(model, x, y):
    return ig.elbo(model, (x, y))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("noise", ["scalar", "per datum"])
def test_collapsed_bound_is_the_bound_at_its_optimum(missing, noise):
    """`collapse` reaches the collapsed bound, no q does better, and the evidence is above."""
    variance = 0.2 if noise == "scalar" else ig.likelihoods.PerDatum(np.linspace(0.1, 0.6, 6), new=0.1)
    y = np.where(np.arange(6)[:, None] == 2, np.nan, Y) if missing else Y
    model = ig.Model(_gp(M=3), ig.likelihoods.Gaussian(variance))
    bound, optimal, reached, evidence = _collapsed(model, X, jnp.asarray(y))
    np.testing.assert_allclose(reached, bound, rtol=1e-10)
    for seed in range(3):
        nudge = 1e-2 * np.random.default_rng(seed).standard_normal((1, 3))
        moved = eqx.tree_at(lambda m: m.layers[0].mean, optimal, optimal.layers[0].mean + nudge)
        assert _elbo(moved, X, jnp.asarray(y)) < bound
    assert bound < evidence


def test_gaussian_noise_of_each_output_is_that_of_all():
    """A `PerOutput` of Gaussians has the same bound, optimal q(u) and evidence as one Gaussian."""
    prior, Z = ig.priors.LMC([[1.0], [2.0]], K.Matern32(0.7)), ig.features.InducingPoints(X[:3])
    y = jnp.asarray(np.concatenate([Y, np.where(np.arange(6)[:, None] == 2, np.nan, Y)], axis=1))
    known = ig.likelihoods.PerDatum(np.stack([np.full(6, 0.2), np.linspace(0.1, 0.6, 6)], axis=1), new=0.1)
    second = ig.likelihoods.Gaussian(ig.likelihoods.PerDatum(known.values[:, 1], new=0.1))
    each = ig.likelihoods.PerOutput([ig.likelihoods.Gaussian(0.2), second])
    models = [ig.Model(ig.SparseGP(prior, Z), noise) for noise in (ig.likelihoods.Gaussian(known), each)]
    together, apart = (_collapsed(model, X, y) for model in models)
    for i in (0, 2, 3):
        np.testing.assert_allclose(apart[i], together[i], rtol=1e-12)
    np.testing.assert_allclose(apart[1].layers[0].root, together[1].layers[0].root, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "prior", ["one", *(pytest.param(p, marks=pytest.mark.slow) for p in ("shared", "own")), "coupled"]
)
def test_collapsed_bound_whitened_first_or_last(prior, monkeypatch):
    """Two orders of summing and whitening, one bound and one gradient: in blocks, the last not full, as in one."""
    kernels = [K.Matern52(0.7, 1.3), K.Matern32(0.9, 0.8)]
    made = {
        "one": lambda: ig.GP(kernels[0]),
        "shared": lambda: ig.priors.Independent(kernels[0], num=2),
        "own": lambda: ig.priors.Independent(kernels),
        "coupled": lambda: ig.priors.LMC(np.array([[1.0, 0.5], [0.3, -1.0]]), kernels),
    }[prior]()
    rng = np.random.default_rng(0)
    y = jnp.asarray(rng.standard_normal((13, made.num_outputs)))
    y = y.at[3, -1].set(jnp.nan)
    x = jnp.asarray(rng.uniform(-1, 1, (13, 1)))
    model = ig.Model(ig.SparseGP(made, ig.features.InducingPoints(x[:4])), ig.likelihoods.Gaussian(0.3))
    in_one = jax.jit(lambda x, y: collapsed.careful_bound(model, (x, y)))(x, y)
    monkeypatch.setattr(sums, "MOST", 5)
    parts = partition(model)

    def results(order):
        def bound(free):
            return order(eqx.tree_at(lambda p: p.free, parts, free).model(), (x, y))

        return jax.jit(jax.value_and_grad(bound))(parts.free)

    first, last = (jax.tree.leaves(results(order)) for order in (collapsed.careful_bound, collapsed.quick_bound))
    np.testing.assert_allclose(first[0], in_one, rtol=1e-10)
    for a, b in zip(first, last, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


def test_collapsed_bound_of_many_features():
    """Of so many features that half of the symmetric sums is computed: value and gradient are those of the formula."""
    key = jax.random.key(0)
    x = jax.random.uniform(key, (300, 2), minval=-3.0, maxval=3.0)
    y = jnp.sin(x[:, 0]) + 0.1 * jax.random.normal(key, (300,))
    Z = jax.random.uniform(jax.random.key(1), (260, 2), minval=-3.0, maxval=3.0)

    def bound(lengthscale):
        gp = ig.SparseGP(ig.GP(ig.kernels.Matern12(lengthscale)), ig.features.InducingPoints(Z), jitter=0.0)
        return collapsed.careful_bound(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), (x, y))

    def dense(lengthscale):
        k = ig.kernels.Matern12(lengthscale)
        Q = k.gram(x, Z) @ jnp.linalg.solve(k.gram(Z), k.gram(Z, x))
        density = jax.scipy.stats.multivariate_normal.logpdf(y, jnp.zeros(300), Q + 0.1 * jnp.eye(300))
        return density - 0.5 * jnp.sum(1.0 - jnp.diag(Q)) / 0.1

    for ours, truth in zip(*(jax.jit(jax.value_and_grad(f))(1.5) for f in (bound, dense)), strict=True):
        np.testing.assert_allclose(ours, truth, rtol=1e-8)


def test_a_row_that_counts_twice_is_a_row_twice():
    """The collapsed bound of a sample, in value and gradient, with noise per output and a missing label."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (7, 1)), rng.standard_normal((7, 2))
    y[3, 1] = np.nan
    prior = ig.priors.LMC(np.array([[1.0, 0.5], [0.3, -1.0]]), [K.Matern52(0.7), K.Matern32(0.9)])
    likelihood = ig.likelihoods.PerOutput([ig.likelihoods.Gaussian(0.3), ig.likelihoods.Gaussian(0.2)])
    model = ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(x[:3])), likelihood)
    twice = np.concatenate([x, x]), np.concatenate([y, y])
    counted = partial(collapsed.bound_of_sample, data=ig.Data(x, y), bound=collapsed.careful_bound, num_data=14)
    for a, b in zip(
        *(
            jax.tree.leaves(eqx.filter_jit(eqx.filter_value_and_grad(f))(model))
            for f in (counted, partial(ig.collapsed_elbo, data=twice))
        ),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_collapsed_bound_of_a_strong_smooth_signal():
    """Where Σ Kuf Kfu may not be whitened last: that is wrong by 380 here."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 3))
    y = np.sin(x.sum(axis=1, keepdims=True)) + 0.03 * rng.standard_normal((400, 1))
    gp = ig.SparseGP(ig.GP(K.SquaredExponential(4.0, 1500.0)), ig.features.InducingPoints(x[:60]))
    model = ig.Model(gp, ig.likelihoods.Gaussian(1e-3))
    bound, _, reached, _ = _collapsed(model, x, jnp.asarray(y))
    np.testing.assert_allclose(reached, bound, atol=1e-5)
    assert np.isnan(eqx.filter_jit(collapsed.quick_bound)(model, (x, y)))


def test_rounding_is_judged_by_rows_of_all_sizes(monkeypatch):
    """The first rows of sorted inputs say little about a prior whose variance grows with them."""
    monkeypatch.setattr(rounding, "ROWS", 10)
    x = 1e4 * np.linspace(0.0, 1.0, 200)[:, None] ** 6
    kernel = K.Linear() + 0.01 * K.SquaredExponential(3000.0)
    gp = ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(np.linspace(0.0, 1.0, 20)[:, None]))
    model = ig.Model(gp, ig.likelihoods.Gaussian(1.0))
    quick, careful = (eqx.filter_jit(f)(model, (x, 0.1 * x)) for f in (collapsed.quick_bound, collapsed.careful_bound))
    assert np.isnan(quick) or abs(quick - careful) < rounding.ROUNDING


@pytest.mark.parametrize("prior", ["one", "coupled"])
def test_the_rounding_of_the_quick_order_is_known(prior):
    """The estimate is above the error (or that is far too large), and within a few thousand of it where it decides."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (300, 2))
    y = np.sin(3.0 * x) + 0.1 * rng.standard_normal((300, 2))

    @jax.jit
    def error_and_estimate(lengthscale):
        kernel = K.SquaredExponential(lengthscale)
        made = ig.GP(kernel) if prior == "one" else ig.priors.LMC(np.array([[300.0], [-400.0]]), [kernel])
        model = ig.Model(ig.SparseGP(made, ig.features.InducingPoints(x[:40])), ig.likelihoods.Gaussian(0.01))
        conjugate, data = Conjugate(model), as_data((x, y[:, : made.num_outputs]))
        orders = (sums.whitened_last, sums.whitened_first)
        quick, careful = (collapsed._bound(model, data, order) for order in orders)
        return quick - careful, rounding.rounding(conjugate, data, conjugate.layer.Kuu())

    for lengthscale in (0.2, 0.4, 0.8, 1.6):  # the largest error of some nearby, since rounding may happen to be kind
        found = [error_and_estimate(jnp.asarray(lengthscale * (1.0 + 1e-4 * i))) for i in range(5)]
        error, estimate = max(abs(error) for error, _ in found), found[0][1]
        assert min(error, 1.0) < estimate < 1e4 * error + 1e-6
    assert estimate > rounding.ROUNDING > 1e-6


def test_a_fit_goes_over_to_the_careful_order(monkeypatch):
    """It starts where Σ Kuf Kfu may be whitened last, and ends where it may not: there it asks again now and then."""
    monkeypatch.setattr(sums, "MOST", 100)  # data of one block always take the careful order
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 1))
    y = np.sin(x) + 0.003 * rng.standard_normal((400, 1))
    gp = ig.SparseGP(ig.GP(K.SquaredExponential(0.3, 1.0)), ig.features.InducingPoints(np.linspace(-3, 3, 20)[:, None]))
    model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
    assert np.isfinite(eqx.filter_jit(collapsed.quick_bound)(model, (x, y)))
    evaluate, asked = lbfgs.compiled(lbfgs.value_and_gradient), []

    def watched(whole, free, key):
        asked.append(whole.objective.fn)
        return evaluate(whole, free, key)

    watched.lower = evaluate.lower
    monkeypatch.setattr(lbfgs, "compiled", lambda fn: watched)
    result = ig.fit(model, (x, y), method="collapsed", steps=30, initialise=False, progress=False)
    assert np.isnan(eqx.filter_jit(collapsed.quick_bound)(result.model, (x, y)))
    careful = eqx.filter_jit(collapsed.careful_bound)(result.model, (x, y))
    np.testing.assert_allclose(result.bound, careful, rtol=1e-6)
    assert "NaN" not in result.message and result.bound > result.history.bound[0] + 100
    runs = [len(list(run)) for _, run in itertools.groupby(asked)]
    assert asked[0] is collapsed.quick_bound and runs[1:4] == [lbfgs.SPELL + 1, 1, 2 * lbfgs.SPELL + 1]


def test_nested_points_never_lower_the_collapsed_bound():
    rng = np.random.default_rng(5)
    x = rng.uniform(-2, 2, (30, 1))
    y = np.sin(3 * x) + 0.2 * rng.standard_normal((30, 1))
    likelihood = ig.likelihoods.Gaussian(0.04)
    prior = ig.GP(K.Matern52(0.5))

    @eqx.filter_jit
    def bound(z):
        return ig.collapsed_elbo(ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(z)), likelihood), (x, y))

    bounds = [float(bound(jnp.asarray(x[:M]))) for M in (2, 6, 20)]
    evidence = float(jax.jit(lambda x, y: prior.condition(x, y, 0.04).log_marginal_likelihood)(x, y))
    assert np.all(np.diff(bounds) > 0) and bounds[-1] <= evidence + 1e-6
    assert evidence - bounds[-1] < 0.5 * (evidence - bounds[0])


def test_minibatch_bounds_average_to_the_whole():
    """Over a partition of the data into batches, the mean of the scaled bounds is the bound."""
    model = ig.Model(_gp(), ig.likelihoods.Bernoulli())
    y = (Y > 0).astype(float)
    elbo = eqx.filter_jit(lambda x, y: ig.elbo(model, (x, y), num_data=6))
    parts = [float(elbo(X[i : i + 2], y[i : i + 2])) for i in (0, 2, 4)]
    np.testing.assert_allclose(np.mean(parts), _elbo(model, X, y), rtol=1e-10)


DRAWN = ("squared exponential", "matern 3/2", "periodic", "linear", "sum", "arc cosine")


@pytest.mark.parametrize("name", DRAWN)
def test_draws_have_the_moments_of_q(name):
    """Mean and covariance over pathwise draws, features and all, are those of q(f)."""
    kernel, rank = KERNELS[name]
    M = min(rank, 3)
    root = 0.5 * np.eye(M) + np.tril(0.2 * np.random.default_rng(2).standard_normal((M, M)), -1)
    gp = ig.SparseGP(ig.GP(kernel, ig.means.Constant(0.5)), ig.features.InducingPoints(X[:M]), np.ones(M), root)
    x, S = jnp.asarray(np.concatenate([XS, X[:1]])), 4000
    draws = eqx.filter_jit(lambda keys: jax.lax.map(lambda k: gp.draw(k, 64, 2)(x)[:, 0], keys, batch_size=500))
    f = np.asarray(draws(jax.random.split(jax.random.key(0), S)))
    mean, cov = (np.asarray(a[0]) for a in gp.joint(x[None]))
    np.testing.assert_array_less(np.abs(f.mean(0) - mean[:, 0]), 5 * f.std(0) / np.sqrt(S) + 1e-5)
    centred = f - mean[:, 0]
    products = centred[:, :, None] * centred[:, None, :]
    np.testing.assert_array_less(np.abs(products.mean(0) - cov), 5 * products.std(0) / np.sqrt(S) + 1e-5)


def test_duplicated_inputs_and_inducing_inputs():
    x = np.repeat(X[:3], 2, axis=0)
    _compare(ig.GP(K.Matern52(0.8)), x, Y, x, XS, 1e-6, 1e-4)


def test_more_features_than_data():
    _compare(ig.GP(K.Matern52(0.8)), X[:2], Y[:2], X, XS, 1e-6, 1e-4)


def test_a_single_datum_and_a_single_feature():
    _compare(ig.GP(K.Matern52(0.8)), X[:1], Y[:1], X[:1], XS, 1e-6, 1e-4)


@pytest.mark.parametrize("lengthscale", [1e-6, 1e-3, 1e3, 1e6])
def test_extreme_lengthscales(lengthscale):
    """Independent values on one end, a constant function on the other."""
    _compare(ig.GP(K.Matern52(lengthscale)), X, Y, X, np.concatenate([X[:2], XS[:1]]), 1e-6, 1e-4)


@eqx.filter_jit
def _fitted_posterior(kernel, x, y, xs, noise):
    """Mean, variance and bound of the optimal sparse GP with Z = X, with the default jitter."""
    model = ig.Model(ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(x)), ig.likelihoods.Gaussian(noise))
    return *ig.collapse(model, (x, y)).layers[0].marginals(xs), ig.collapsed_elbo(model, (x, y))


def _fitted(kernel, x, y, xs, noise=0.1):
    return [np.asarray(a) for a in _fitted_posterior(kernel, *(jnp.asarray(a) for a in (x, y, xs, noise)))]


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_extreme_targets(scale):
    mean, variance, _ = _fitted(K.SquaredExponential(0.8, scale**2), X, scale * Y, XS, 0.1 * scale**2)
    reference, spread, _ = _fitted(K.SquaredExponential(0.8), X, Y, XS)
    np.testing.assert_allclose(mean / scale, reference, rtol=1e-6)
    np.testing.assert_allclose(variance / scale**2, spread, rtol=1e-6)


@pytest.mark.parametrize("kernel", [K.SquaredExponential(0.8), K.Matern12(0.8)], ids=["smooth", "rough"])
def test_inputs_far_from_the_origin(kernel):
    """A stationary kernel does not mind where the inputs are."""
    offset = 2.0**23  # so that the shifted inputs can be shifted back without loss
    x, xs = (np.round(a * 2.0**20) / 2.0**20 for a in (X, XS))
    near, far = (_fitted(kernel, x + c, Y, xs + c) for c in (0.0, offset))
    for a, b in zip(far, near, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_float32_agrees_with_float64():
    """The same model in single precision, offset by a thousand, stays in single precision and close."""
    x, y, xs = (np.asarray(a, np.float32) for a in (X + 1000, Y, XS + 1000))
    single = _fitted(K.SquaredExponential(np.float32(0.8), np.float32(1.0)), x, y, xs, np.float32(0.1))
    assert {a.dtype for a in single} == {np.dtype("float32")}
    double = _fitted(K.SquaredExponential(0.8), *(a.astype(float) for a in (x, y, xs)))
    for a, b in zip(single, double, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("objective", "coordinates"),
    [(ig.elbo, "u"), (ig.elbo, "v"), (ig.elbo, "w"), (ig.collapsed_elbo, "w")],
    ids=["elbo-u", "elbo-v", "elbo-w", "collapsed"],
)
def test_gradient_of_the_bound(objective, coordinates):
    """Each number by itself: kernel, mean, Z, noise and q(u); both modes, against central differences."""
    split = partition(ig.Model(_gp(coordinates, jitter=1e-6), ig.likelihoods.Gaussian(0.2)))
    flat, unravel = jax.flatten_util.ravel_pytree(split.free)
    step, units = 1e-5, jnp.eye(flat.size)

    def value(flat):
        return objective(eqx.tree_at(lambda p: p.free, split, unravel(flat)).model(), (X, Y))

    @eqx.filter_jit
    def gradients(flat):
        differences = jax.lax.map(lambda e: (value(flat + step * e) - value(flat - step * e)) / (2 * step), units)
        forward = jax.lax.map(lambda e: jax.jvp(value, (flat,), (e,))[1], units)
        return jax.grad(value)(flat), forward, differences

    reverse, forward, finite = gradients(flat)
    np.testing.assert_allclose(reverse, forward, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(reverse, finite, rtol=1e-6, atol=2e-7)
    assert np.count_nonzero(reverse) >= (13 if objective is ig.collapsed_elbo else 27)
