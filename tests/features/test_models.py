"""Everything works unchanged with every kind of features: coordinates, bounds, natural gradients, draws, fits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import inducing as ig

from ..oracles.features import derivative
from .cases import CASES, IDS, VARIANTS, model_of

F, k = ig.features, ig.kernels


@pytest.mark.parametrize("name", [name for name in IDS if name not in VARIANTS])
def test_coordinates_bounds_and_natural_gradients(name):
    """A natural-gradient step of length one attains the collapsed bound, which is below the evidence; the same q(u) in
    u and v gives the same bound and process; the gradient of all kernel parameters agrees with finite differences."""
    model, data = model_of(name, "w", ig.means.Constant(0.4))

    @eqx.filter_jit
    def compute(model, data):
        stepped = ig.natural_gradient_step(model, data, gamma=1.0)
        layers = [stepped.layers[0]] + [stepped.layers[0].with_coordinates(c) for c in "uv"]
        same = [ig.Model(layer, model.likelihood) for layer in layers]

        def along(t):  # all kernel parameters together
            kernel = jax.tree.map(lambda a: a * jnp.exp(t), model.layers[0].prior.kernel)
            return ig.collapsed_elbo(eqx.tree_at(lambda m: m.layers[0].prior.kernel, model, kernel), data)

        ts = jnp.array([-3e-4, 0.0, 3e-4])  # the bound itself is rounded at 1e-8
        values, slopes = jax.lax.map(jax.value_and_grad(along), ts)
        return {
            "evidence": ig.log_evidence(model, data),
            "bounds": jnp.stack([ig.elbo(m, data) for m in same]),
            "moments": jnp.stack([jnp.concatenate(layer.marginals(data.x)) for layer in layers]),
            "values": values,
            "slope": slopes[1],
        }

    got = jax.tree.map(np.asarray, compute(model, data))
    np.testing.assert_allclose(got["bounds"], got["values"][1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(got["moments"][1:], got["moments"][:1].repeat(2, 0), atol=1e-5)
    assert got["values"][1] <= got["evidence"] + 1e-6
    np.testing.assert_allclose(got["slope"], (got["values"][2] - got["values"][0]) / 6e-4, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("coordinates", ["u", "v"])
@pytest.mark.parametrize("name", ["fourier 5/2", "laplacian", pytest.param("product", marks=pytest.mark.slow)])
def test_natural_gradients_in_other_coordinates(name, coordinates):
    model, data = model_of(name, coordinates, ig.means.Constant(0.4))

    @eqx.filter_jit
    def compute(model, data):
        stepped = ig.natural_gradient_step(model, data, gamma=1.0)
        return ig.elbo(stepped, data), ig.collapsed_elbo(model, data)

    np.testing.assert_allclose(*compute(model, data), rtol=1e-6)


MANY, FEW = (3000, 32), (400, 16)  # draws, and random features of each: `apply` has few nodes, or thousands
DRAWS = {"product": (100, 16), "sphere relu": (100, 16), "laplacian": (1000, 12), "product with points": (1000, 32)}
DRAWS |= dict.fromkeys(["additive", "sphere", "mercer", "multiscale"], FEW)
DRAWS |= dict.fromkeys(["fourier 5/2", "free fourier", "plain fourier", "integral", "regions", "numerical"], MANY)
DRAWS |= dict.fromkeys(["derivative", "union", "union of fourier"], MANY)


VARIANTS_OF_DRAWS = ("product with points", "sphere relu", "plain fourier", "free fourier", "regions")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in VARIANTS_OF_DRAWS else []) for n in DRAWS]
)
def test_draws_agree_with_q(name):
    """Mean and covariance of pathwise draws are those of q(f), within Monte Carlo error."""
    num, waves = DRAWS[name]
    if name == "product with points":
        features, kernel, X = CASES["product"]
        features = F.Product((F.Fourier(-1.5, 1.6, 2), F.InducingPoints([[-0.3], [0.2], [0.6]])))
    else:
        features, kernel, X = CASES[name]
    X = jnp.asarray(X[:3])
    rng = np.random.default_rng(0)
    M = features.num_features
    q = jnp.asarray(rng.normal(size=M)), jnp.asarray(np.tril(0.2 * rng.normal(size=(M, M))) + 0.5 * np.eye(M))
    layer = ig.SparseGP(ig.GP(kernel, ig.means.Constant(0.4)), features, *q)

    @eqx.filter_jit
    def compute(layer, X):
        keys = jax.random.split(jax.random.key(0), num)
        draws = jax.lax.map(lambda key: layer.draw(key, waves, X.shape[1])(X)[:, 0], keys)
        mean, cov = layer.joint(X[None])
        return draws, mean[0, :, 0], cov[0]

    draws, mean, cov = jax.tree.map(np.asarray, compute(layer, X))
    error = np.sqrt(np.diag(cov) / num)
    assert (np.abs(draws.mean(0) - mean) < 4.5 * error + 1e-3).all()
    spread = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / num)
    assert (np.abs(np.cov(draws.T) - cov) < 4.5 * spread + 3e-3).all()


@pytest.mark.parametrize("make", [lambda n: F.Fourier(-1.5, 1.6, n), lambda n: F.plain_fourier(-1.5, 1.6, n, 160)])
def test_more_nested_features_never_lower_the_bound(make):
    X = jnp.linspace(-0.7, 0.8, 12)[:, None]
    data = ig.Data(X, jnp.sin(7.0 * X))
    likelihood = ig.likelihoods.Gaussian(0.05)

    @jax.jit
    def bounds():
        models = [
            ig.Model(ig.SparseGP(ig.GP(k.Matern32(0.5)), make(n), jitter=1e-10), likelihood) for n in (2, 4, 8, 16)
        ]
        return jnp.stack([ig.collapsed_elbo(m, data) for m in models]), ig.log_evidence(models[0], data)

    values, evidence = bounds()
    assert (np.diff(values) > 0).all()
    assert values[-1] < evidence


def test_laplacian_features_with_the_original_kernel_would_exceed_the_evidence():
    """Why that pair is refused: K − Q has negative eigenvalues, and along them the "bound" passes the evidence."""
    base, noise = k.SquaredExponential(0.5), 0.01
    kernel = k.HilbertSpace(base, (-1.0, 1.0), 30)
    X = jnp.linspace(-0.8, 0.8, 30)[:, None]
    features = F.EigenLaplacian(kernel.box, kernel.num)
    A = features.Kuu(kernel, 0.0).root_solve(features.Kuf(kernel, X))
    K, Q = np.asarray(base.gram(X)), np.asarray(A.T @ A)
    np.testing.assert_allclose(kernel.gram(X), Q, atol=1e-12)  # exact for the kernel they belong to
    assert np.linalg.eigvalsh(K - Q).min() < -0.1
    noisy = [C + noise * np.eye(len(X)) for C in (K, Q)]
    gap, directions = np.linalg.eigh(np.linalg.inv(noisy[0]) - np.linalg.inv(noisy[1]))
    y = np.sqrt(2.0 * np.trace(K - Q) / noise / gap[-1]) * directions[:, -1]  # outweighs the trace term

    def log_density(C):
        return multivariate_normal(np.zeros(len(y)), C).logpdf(y)

    assert log_density(noisy[1]) - np.trace(K - Q) / (2.0 * noise) > log_density(noisy[0]) + 10.0
    with pytest.raises(TypeError, match="HilbertSpace"):
        ig.SparseGP(ig.GP(base), features)


def test_precomputed_bound_is_the_collapsed_bound():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 3.0, 300)
    y = np.where(rng.uniform(size=300) < 0.1, np.nan, np.sin(5 * X))
    layer = ig.SparseGP(ig.GP(k.Matern52(0.3, 1.2)), F.Fourier.around(X, 12))
    model = ig.Model(layer, ig.likelihoods.Gaussian(0.05))
    data = ig.Data(X, y)
    objective = ig.PrecomputedElbo(model, data)

    def value_and_slope(bound):
        def of_noise(v):
            return bound(eqx.tree_at(lambda m: m.likelihood.variance, model, v))

        return jax.jit(jax.value_and_grad(of_noise))(jnp.asarray(0.05))

    got, slope = value_and_slope(objective)
    expected, expected_slope = value_and_slope(lambda m: ig.collapsed_elbo(m, data))
    np.testing.assert_allclose([got, slope], [expected, expected_slope], rtol=1e-8)
    np.testing.assert_allclose(ig.elbo(objective.collapse(model), data), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="beyond"):
        ig.PrecomputedElbo(model, (X * 10.0, y))
    for other, message in (
        (F.Fourier.around(X, 11), "num=12.*num=11"),
        (F.Fourier(-1.0, 4.0, 12), "built for.*a=-1.0, b=4.0"),
    ):
        with pytest.raises(ValueError, match=message):
            objective(eqx.tree_at(lambda m: m.layers[0], model, ig.SparseGP(layer.prior, other)))
    with pytest.raises(TypeError, match="Fourier"):
        points = ig.SparseGP(ig.GP(k.Matern52()), F.InducingPoints([[0.0], [1.0]]))
        ig.PrecomputedElbo(ig.Model(points, ig.likelihoods.Gaussian(0.1)), data)


@pytest.mark.data
def test_derivative_oracles_by_features(oracles):
    """The cases of derivative kernels and inducing variables, with u a union of points and derivatives."""
    for case in oracles:
        if case["group"] == "8_derivative" and not case["name"].startswith("derivative_gp"):
            got = derivative(case)
            for key, expected in case["expected"].items():
                np.testing.assert_allclose(got[key], expected, rtol=case["rtol"], atol=case["atol"], err_msg=key)


def test_kronecker_root_is_the_dense_product():
    """Bound, process and draws of a Kronecker root are those of its dense product; Adam trains its factors."""
    features, kernel, X = CASES["product"]
    rng = np.random.default_rng(0)
    factors = tuple(jnp.asarray(np.tril(0.3 * rng.normal(size=(n, n))) + np.eye(n)) for n in (5, 3))
    mean = jnp.asarray(rng.normal(size=15))
    data = ig.Data(X, jnp.sin(2.0 * jnp.asarray(X).sum(1)))
    layers = [ig.SparseGP(ig.GP(kernel), features, mean, root) for root in (factors, jnp.kron(*factors))]
    model, dense = (ig.Model(layer, ig.likelihoods.Gaussian(0.1)) for layer in layers)

    @eqx.filter_jit
    def compute(model, data):
        layer = model.layers[0]
        return ig.elbo(model, data), layer.kl(), layer.marginals(data.x), layer.draw(jax.random.key(0), 8, 2)(data.x)

    of_factors, of_dense = compute(model, data), compute(dense, data)
    for got, expected in zip(jax.tree.leaves(of_factors), jax.tree.leaves(of_dense), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
    result = ig.fit(model, data, steps=20, batch_size=4, progress=False, initialise=False)
    assert result.method == "adam"
    assert [f.shape for f in result.model.layers[0].root] == [(1, 5, 5), (1, 3, 3)]
    assert float(compute(result.model, data)[0]) > float(of_factors[0])
    square = ig.features.Product((ig.features.Fourier(-1.5, 1.6, 1),) * 2)
    alike = ig.SparseGP(ig.GP(kernel), square, root=(jnp.eye(3), jnp.eye(3)))  # factors that would stack
    assert [f.shape for f in alike.root] == [(1, 3, 3), (1, 3, 3)]
    assert abs(float(alike.kl())) < 1e-12
    with pytest.raises(TypeError, match="Kronecker"):
        ig.natural_gradient_step(model, data)
    with pytest.raises(ValueError, match="sizes of product 15"):
        ig.SparseGP(ig.GP(kernel), features, root=(jnp.eye(5), jnp.eye(4)))
    with pytest.raises(ValueError, match="coordinates 'w'"):
        ig.SparseGP(ig.GP(kernel), features, root=factors, coordinates="u")
