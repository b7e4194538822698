"""What every kernel must satisfy, and the kernels that are not stationary one by one."""

import math

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

import inducing as ig
from inducing import kernels as K
from inducing.parameters import positive

L = [0.8, 1.6]
KERNELS = {
    "SquaredExponential": K.SquaredExponential(L, 1.3),
    "Matern12": K.Matern12(L, 1.3),
    "Matern32": K.Matern32(0.9, 1.3),
    "Matern52": K.Matern52(L, 1.3),
    "RationalQuadratic": K.RationalQuadratic(L, 1.3, 2.2),
    "PeriodicSquaredExponential": K.Periodic(K.SquaredExponential(L, 1.3), 1.7),
    "PeriodicMatern32": K.Periodic(K.Matern32(0.9, 1.3), [1.7, 2.3]),
    "Cosine": K.Cosine([3.0, 2.0], 1.3),
    "Linear": K.Linear([0.5, 1.5]),
    "Polynomial": K.Polynomial(3, [0.5, 0.7], 0.8),
    "ArcCosine0": K.ArcCosine(0, 1.3, [0.5, 0.9], 0.6),
    "ArcCosine1": K.ArcCosine(1, 1.3, [0.5, 0.9], 0.6),
    "ArcCosine2": K.ArcCosine(2, 1.3, 0.5, 0.6),
    "Constant": K.Constant(1.3),
    "White": K.White(1.3),
    "ActiveDims": K.ActiveDims(K.Matern52(0.7), 1),
    "Additive": K.Additive(L, [0.9, 0.4]),
    "Warped": K.Warped(K.SquaredExponential(), eqx.nn.MLP(2, 3, 4, 1, jnp.tanh, key=jax.random.key(0))),
    "ChangePoint": K.ChangePoint((K.Matern32(0.9), K.Linear(), K.Constant(2.0)), [-0.5, 0.6], [3.0, 5.0], 1),
    "Sum": K.Linear() + K.Matern52(0.9) + K.Constant(0.3),
    "Product": 1.5 * K.SquaredExponential(1.4) * K.ActiveDims(K.Linear(), 0),
    "ProductOfStationary": K.SquaredExponential(1.4) * K.Matern32(2.0),
}
FINITE_RANK = {"Cosine": 2, "Linear": 2, "Polynomial": 10, "Constant": 1}
cases = pytest.mark.parametrize("name", KERNELS)


def points(seed=0, num=7, dim=2):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(num, dim)))


@eqx.filter_jit
def all_values(kernel, X, Z):
    single = jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(Z))(X)
    return kernel.gram(X, Z), kernel.gram(X), kernel.diag(X), single


@cases
def test_gram_diag_and_single_values_agree(name):
    X = points()
    Z = jnp.concatenate([points(1, 3), X[:2]])
    cross, gram, diag, single = all_values(KERNELS[name], X, Z)
    np.testing.assert_allclose(cross, single, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(gram[:, :2], cross[:, 3:], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(jnp.diag(gram), diag, rtol=1e-13)


@cases
@given(seed=st.integers(0, 2**16), scale=st.sampled_from([1e-3, 1.0, 30.0]))
def test_positive_semidefinite_and_symmetric(name, seed, scale):
    X = scale * points(seed)
    X = X.at[3].set(X[0])  # a duplicated input
    gram = np.asarray(all_values(KERNELS[name], X, X[:5])[1])
    assert (gram == gram.T).all()
    assert np.linalg.eigvalsh(gram).min() >= -1e-13 * np.trace(gram)


@cases
def test_gradients_in_both_modes(name):
    kernel = KERNELS[name]
    X, Z = points(), points(1, 4)
    arrays, rest = eqx.partition(kernel, eqx.is_inexact_array)
    flat, unravel = ravel_pytree((arrays, X, Z))
    weights = jnp.asarray(np.random.default_rng(2).normal(size=(7, 4)))

    def f(flat):
        arrays, X, Z = unravel(flat)
        k = eqx.combine(arrays, rest)
        return jnp.sum(weights * k.gram(X, Z)) + jnp.sum(weights @ weights.T * k.gram(X)) + jnp.sum(k.diag(X))

    @jax.jit
    def compare(flat, direction, step):
        forward = jax.jvp(f, (flat,), (direction,))[1]
        difference = (f(flat + step * direction) - f(flat - step * direction)) / (2 * step)
        return jax.grad(f)(flat) @ direction, forward, difference

    # Not at X = Z, where White and kernels without a derivative jump; gram(X) has its diagonal held at zero distance.
    direction = jnp.asarray(np.random.default_rng(3).normal(size=flat.shape))
    reverse, forward, difference = compare(flat, direction, 1e-5)
    np.testing.assert_allclose(reverse, forward, rtol=1e-11)
    np.testing.assert_allclose(reverse, difference, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "White"])
def test_random_features_have_the_kernel_as_expectation(name):
    kernel, X = KERNELS[name], points(num=4)
    num = 100_000
    features = kernel.random_features(jax.random.key(1), num, 2)(X)
    estimate = features @ features.T
    if name in FINITE_RANK:
        assert features.shape == (4, FINITE_RANK[name])
        np.testing.assert_allclose(estimate, kernel.gram(X), rtol=1e-12, atol=1e-13)
    else:
        # The standard error of a mean of 1e5 products is at most 0.007 of the variance, save for the fourth powers of
        # normals in the arc-cosine kernel of order 2.
        bound = 0.08 if name == "ArcCosine2" else 0.03
        assert features.shape[0] == 4 and num <= features.shape[1] <= 3 * num
        np.testing.assert_allclose(estimate, kernel.gram(X), atol=bound * float(kernel.diag(X).max()))


def test_no_rows_are_rows_too():
    kernel = K.HilbertSpace(K.Matern32(), [(-1.0, 1.0), (0.0, 1.0)], 3)
    assert kernel.gram(points()[:0]).shape == (0, 0) and kernel.diag(points()[:0]).shape == (0,)
    parts = [ig.features.InducingPoints([[0.0], [1.0]])] * 2
    kernel = K.ActiveDims(K.Matern32(), 0) * K.ActiveDims(K.Matern12(), 1)
    assert ig.features.Product(parts).Kuf(kernel, points()[:0]).shape == (4, 0)


def test_white_says_why_it_has_no_function_draws():
    with pytest.raises(TypeError, match="no function draws"):
        (K.Linear() + K.White()).random_features(jax.random.key(0), 8, 1)


def _from_oracle(name, p):
    v, ell = p.get("variance"), p.get("lengthscales")
    plain = {"se_ard": "SquaredExponential", "matern12": "Matern12", "matern32": "Matern32", "matern52": "Matern52"}
    if name in plain:
        return getattr(K, plain[name])(ell, v)
    if name.startswith("arccos"):
        return K.ArcCosine(p["order"], v, p["weight_variances"], p["bias_variance"])
    return {
        "rq": lambda: K.RationalQuadratic(ell, v, p["alpha"]),
        "periodic": lambda: K.Periodic(K.SquaredExponential(ell, v), p["period"]),
        "linear": lambda: K.Linear(p["variances"]),
        "linear_plus_se": lambda: K.Linear(p["variances"]) + K.SquaredExponential(ell, v),
        "product_se_matern32_active_dims": lambda: (
            K.ActiveDims(K.SquaredExponential(p["lengthscale1"], p["variance1"]), (0,))
            * K.ActiveDims(K.Matern32(p["lengthscale2"], p["variance2"]), (1,))
        ),
        "product_se_periodic": lambda: (
            K.SquaredExponential(ell, v) * K.Periodic(K.SquaredExponential(p["lengthscale_per"]), p["period"])
        ),
        "cosine": lambda: K.Cosine(ell, v),
        "polynomial": lambda: K.Polynomial(p["degree"], p["variances"], p["offset"]),
    }[name]()


@pytest.mark.data
def test_gram_matrices_of_other_libraries(oracles):
    seen = 0
    for case in oracles:
        group, _, name = case["name"].partition("/")
        if group == "exact_gp":
            X = jnp.array(case["inputs"]["X"])
            kernel = _from_oracle(name, case["inputs"]["kernel"])
            for gram in (kernel.gram(X), kernel.gram(X, X)):
                np.testing.assert_allclose(gram, case["expected"]["K"], case["rtol"], case["atol"], err_msg=name)
            seen += 1
    assert seen


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_far_out_and_almost_opposite(order):
    """Against the angle in extended precision, from parallel to opposite directions."""
    x = np.array([[1e-3], [1.0], [50.0]])
    y = np.array([[1e-3 + 1e-9], [1.0 + 1e-7], [-40.0], [50.0]])
    w, b = 0.7, 0.4
    u, v = (np.stack([math.sqrt(w) * z[:, 0], np.full(len(z), math.sqrt(b))], 1).astype(np.longdouble) for z in (x, y))
    cross = np.abs(u[:, None, 0] * v[None, :, 1] - u[:, None, 1] * v[None, :, 0])
    inner = u @ v.T
    theta = np.arctan2(cross, inner)
    norms = np.sqrt(cross**2 + inner**2)
    angular = [
        np.pi - theta,
        np.sin(theta) + (np.pi - theta) * np.cos(theta),
        3 * np.sin(theta) * np.cos(theta) + (np.pi - theta) * (1 + 2 * np.cos(theta) ** 2),
    ][order]
    expected = (norms**order * angular / np.pi).astype(float)
    kernel = K.ArcCosine(order, 1.0, w, b)
    scale = np.asarray(norms**order, float)
    np.testing.assert_array_less(np.abs(np.asarray(kernel.gram(x, y)) - expected), 1e-14 * scale + 1e-300)


def test_arc_cosine_of_order_0_is_exact_on_the_diagonal():
    X = points(num=20, dim=9)
    kernel = K.ArcCosine(0, 1.3, 0.5, 0.6)
    np.testing.assert_allclose(jnp.diag(all_values(kernel, X, X + 0.0)[0]), 1.3, rtol=1e-15)
    assert bool(jnp.isfinite(jax.jit(jax.grad(lambda X: kernel.gram(X, X).sum()))(X)).all())


def test_slope_variances_of_the_other_kernels():
    x = jnp.array([0.7])
    w, b = 0.5, 0.6
    u1, norm2 = math.sqrt(w) * 0.7, w * 0.49 + b
    expected = [
        (K.ArcCosine(1, 1.3, w, b), 1.3 * w),
        (K.ArcCosine(2, 1.3, w, b), 4 * 1.3 * w * (norm2 + 2 * u1**2)),
        (K.Periodic(K.Matern32(0.8, 1.3), 1.7), 3 * 1.3 * (math.pi / 1.7 / 0.8) ** 2),
        (K.Periodic(K.SquaredExponential(0.8, 1.3), 1.7), 1.3 * (math.pi / 1.7 / 0.8) ** 2),
        (K.Cosine(2.0, 1.3), 1.3 * math.pi**2),
        (K.Linear(1.3), 1.3),
        (K.Matern32(0.5) + K.Linear(2.0), 12.0 + 2.0),
        (3.0 * K.Matern52(0.5), 3.0 * 5 / 3 / 0.25),
        (K.Warped(K.Matern32(), lambda x: 2.0 * x), 12.0),
    ]
    for kernel, value in expected:
        assert kernel.smoothness >= 1
        assert float(jax.jit(jax.jacfwd(jax.grad(kernel, 0), 1))(x, x)[0, 0]) == pytest.approx(value, rel=1e-12), kernel


def test_slope_covariances_of_compositions():
    """∂²k/∂x∂y at x = y, by hand."""
    x, ell, v = 0.7, 0.8, 2.0  # of k₁ = SquaredExponential(ell): k₁ = 1, ∂k₁ = 0, ∂²k₁/∂x∂y = 1/ell²
    base = v * x * x + 0.6
    s = 1 / (1 + math.exp(-3 * (x - 0.2)))
    ds = 3 * s * (1 - s)
    changed = ds**2 + (1 - s) ** 2 / ell**2 + v * (ds * x + s) ** 2
    expected = [
        (K.Polynomial(3, v, 0.6), 3 * v * base**2 + 6 * v**2 * x * x * base),
        (K.ChangePoint((K.SquaredExponential(ell), K.Linear(v)), [0.2], 3.0), changed),
        (K.Constant(1.3), 0.0),
        (K.SquaredExponential(ell) * K.Linear(v), v * x * x / ell**2 + v),
        (K.Matern32(ell) * K.Matern52(0.5, 1.3), 1.3 * (3 / ell**2 + 5 / 3 / 0.25)),
    ]

    @jax.jit
    def slopes(x):
        return [jax.jacfwd(jax.grad(kernel, 0), 1)(x, x)[0, 0] for kernel, _ in expected]

    np.testing.assert_allclose(slopes(jnp.array([x])), [value for _, value in expected], rtol=1e-12, atol=1e-14)
    active = K.ActiveDims(K.Matern32(ell), 1)
    two = jnp.array([0.3, x])
    np.testing.assert_allclose(
        jax.jit(jax.jacfwd(jax.grad(active, 0), 1))(two, two), np.diag([0.0, 3 / ell**2]), rtol=1e-12, atol=1e-14
    )


@given(seed=st.integers(0, 2**16))
def test_coregion_is_positive_semidefinite_and_symmetric(seed):
    rng = np.random.default_rng(seed)
    kernel = K.Coregion(rng.normal(size=(4, 2)), rng.uniform(1e-6, 1.0, 4))
    gram = np.asarray(kernel.gram(jnp.asarray(rng.integers(0, 4, (7, 1)), float)))
    assert (gram == gram.T).all()
    assert np.linalg.eigvalsh(gram).min() >= -1e-13 * np.trace(gram)


SINGLE = ("Linear", "Polynomial", "ArcCosine0", "ArcCosine1", "ArcCosine2", "Cosine", "ChangePoint", "Coregion")


@pytest.mark.parametrize("name", SINGLE)
def test_float32(name):
    """Values at single-precision inputs are those of double precision, to single precision."""
    if name == "Coregion":
        kernel, X = K.Coregion([[1.0, 0.5], [-0.3, 2.0]], [0.1, 0.2]), jnp.array([[0.0], [1.0], [1.0], [0.0], [1.0]])
    else:
        kernel, X = KERNELS[name], points().at[3].set(points()[0])
    single, X = jax.tree.map(lambda a: a.astype(jnp.float32), (kernel, X))
    double = jax.tree.map(lambda a: a.astype(float), (single, X))
    got, expected = all_values(single, X, X[:4]), all_values(*double, double[1][:4])
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == jnp.float32
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6 * float(jnp.max(expected[2])))


def test_smoothness():
    assert [KERNELS[f"ArcCosine{n}"].smoothness for n in range(3)] == [0, 1, 2]
    assert [k.smoothness for k in (K.Matern12(), K.Matern32(), K.Matern52(), K.White())] == [0, 1, 2, 0]
    assert K.SquaredExponential().smoothness == K.Linear().smoothness == math.inf
    assert (K.SquaredExponential() + K.Matern32()).smoothness == 1
    assert (K.Matern12() * K.Linear()).smoothness == 0
    assert K.Periodic(K.Matern52()).smoothness == K.ActiveDims(K.Matern52(), 0).smoothness == 2
    entire = ("SquaredExponential", "RationalQuadratic", "Cosine", "Linear", "Polynomial", "Constant", "Warped")
    assert {KERNELS[name].smoothness for name in entire} == {math.inf}
    assert KERNELS["ChangePoint"].smoothness == KERNELS["ProductOfStationary"].smoothness == 1
    assert K.Coregion([[1.0]], [1.0]).smoothness == 0


def test_own_kernels_have_the_derivatives_they_declare():
    class Brownian(K.AbstractPointKernel):
        def __call__(self, x, y):
            return jnp.minimum(x, y).sum()

    class Quadratic(K.AbstractPointKernel):
        smoothness = math.inf

        def __call__(self, x, y):
            return (1.0 + jnp.dot(x, y)) ** 2

    Z = jnp.array([[1.0], [2.0]])
    slopes = ig.features.InducingDerivatives(Z)
    for refused in (lambda: slopes.Kuu(Brownian(), 0.0), lambda: slopes.Kuf(Brownian(), Z)):
        with pytest.raises(TypeError, match="a kernel whose process has a derivative"):
            refused()
    with pytest.raises(TypeError, match="no derivative"):
        ig.priors.Derivative(ig.GP(Brownian()), dim=1)
    zz = np.outer(Z, Z)  # ∂x∂y (1 + xy)² = 2 (1 + 2xy)
    np.testing.assert_allclose(slopes.Kuu(Quadratic(), 0.0).dense(), 2 * (1 + 2 * zz), rtol=1e-12)


def test_periodic_repeats_far_from_the_origin_in_float32():
    X = np.linspace(0.0, 3.0, 9, dtype=np.float32)[:, None]
    kernel = K.Periodic(K.Matern12(np.float32(0.5), np.float32(1.0)), np.float32(0.5))
    d = (X - X[:3].T).astype(float)
    expected = np.exp(-np.abs(np.sin(np.pi * d / 0.5)) / 0.5)
    np.testing.assert_allclose(kernel.gram(X + np.float32(1024), X[:3] + np.float32(1024)), expected, atol=1e-5)


def test_change_point():
    locations, steepness = np.array([-0.5, 0.6]), np.array([3.0, 5.0])
    X, Z = np.asarray(points()), np.asarray(points(1, 3))

    def weights(x):
        s = 1 / (1 + np.exp(-steepness * (x[:, 1:] - locations)))
        return np.stack([1 - s[:, 0], s[:, 0] * (1 - s[:, 1]), s[:, 1]])

    r = np.sqrt(((X[:, None] - Z[None]) ** 2).sum(-1)) / 0.9
    parts = [(1 + math.sqrt(3) * r) * np.exp(-math.sqrt(3) * r), X @ Z.T, np.full((7, 3), 2.0)]
    expected = sum(a[:, None] * part * b[None] for a, part, b in zip(weights(X), parts, weights(Z), strict=True))
    np.testing.assert_allclose(KERNELS["ChangePoint"].gram(X, Z), expected, rtol=1e-12, atol=1e-14)


def test_white_is_by_equality_of_inputs():
    X = jnp.array([[0.0, 1.0], [0.0, 2.0], [0.0, 1.0]])
    np.testing.assert_array_equal(K.White(0.5).gram(X), 0.5 * np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]]))


def test_coregion():
    W, kappa = np.array([[1.0, 0.5], [-0.3, 2.0], [0.2, 0.1]]), np.array([0.1, 0.2, 0.3])
    B = W @ W.T + np.diag(kappa)
    index = np.array([2, 0, 1, 1])
    kernel = K.Coregion(W, kappa)
    X = jnp.asarray(index[:, None], float)
    np.testing.assert_allclose(kernel.gram(X), B[np.ix_(index, index)], rtol=1e-14)
    np.testing.assert_allclose(kernel.gram(X, X[:2]), B[np.ix_(index, index[:2])], rtol=1e-14)
    np.testing.assert_allclose(kernel.diag(X), np.diag(B)[index], rtol=1e-14)
    assert float(kernel(X[0], X[1])) == pytest.approx(B[2, 0])
    features = kernel.random_features(jax.random.key(0), 1, 1)(X)
    np.testing.assert_allclose(features @ features.T, kernel.gram(X), rtol=1e-13)
    gradient = jax.jit(jax.grad(lambda k: k.gram(X)[0, 1]))(kernel)
    np.testing.assert_allclose(gradient.W, [W[2], np.zeros(2), W[0]])
    task = K.ActiveDims(kernel, (1,)) * K.ActiveDims(K.SquaredExponential(), (0,))
    assert task.gram(jnp.concatenate([jnp.zeros((4, 1)), X], 1)).shape == (4, 4)
    for bad in (3.0, -1.0, 0.5, math.nan):
        with pytest.raises(ValueError, match="whole numbers from 0 to 2"):
            kernel.gram(jnp.full((1, 1), bad))
    with pytest.raises(ValueError, match="ActiveDims"):
        kernel.gram(jnp.zeros((2, 2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_waves_of_many_turns_have_positive_gram_matrices(dtype):
    """Phases of a million turns have lost their digits, but the same ones for every pair."""
    X = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (30, 2)), dtype)
    kernel = K.Cosine(jnp.asarray(1e-6, dtype), jnp.asarray(1.0, dtype))
    smallest = np.linalg.eigvalsh(np.asarray(kernel.gram(X), float))[0]
    assert smallest > -30 * np.finfo(dtype).eps


def test_algebra_flattens_and_scales():
    k = K.Matern32()
    assert len((k + k + k).kernels) == 3
    assert len((2.0 * k * k).kernels) == 3
    X = points()
    for two in (2, 2.0, np.float64(2.0), jnp.array(2.0), np.array(2.0)):
        np.testing.assert_allclose((two * k).gram(X), 2 * k.gram(X), rtol=1e-15)
        np.testing.assert_allclose((k * two).gram(X), 2 * k.gram(X), rtol=1e-15)
        np.testing.assert_allclose((two + k).gram(X), 2 + k.gram(X), rtol=1e-15)
        np.testing.assert_allclose((k + two).gram(X), 2 + k.gram(X), rtol=1e-15)
    assert len(sum([k, k, 0.5]).kernels) == 3  # which begins with 0 + k
    for wrong in (lambda: -1.0 * k, lambda: 0.0 * k, lambda: k + -1.0):
        with pytest.raises(ValueError, match=r"Constant\.variance must be positive"):
            wrong()
    with pytest.raises(TypeError):
        k + "noise"
    with pytest.raises(TypeError, match="kernels"):
        K.Sum((k, 2.0))


def test_own_kernel_in_five_lines():
    class Brownian(K.AbstractPointKernel):
        variance: Array = positive(1.0)

        def __call__(self, x, y):
            return self.variance * jnp.minimum(x, y).sum()

    X = jnp.array([[1.0], [2.0], [4.0]])
    kernel = Brownian(2.0) + K.Constant(1.0)
    np.testing.assert_array_equal(kernel.gram(X), [[3, 3, 3], [3, 5, 5], [3, 5, 9]])
    np.testing.assert_array_equal(kernel.gram(X, X[:1]), [[3], [3], [3]])
    np.testing.assert_array_equal(kernel.diag(X), [3, 5, 9])
    assert float(jax.grad(lambda k: k.gram(X).sum())(Brownian(2.0)).variance) == 15.0
    with pytest.raises(TypeError, match=r"Brownian.*random features"):
        kernel.random_features(jax.random.key(0), 8, 1)


def test_kernels_vmap_over_their_parameters():
    X = points(dim=6)
    lengthscales = jnp.array([0.5, 1.0, 2.0])
    batched = jax.vmap(lambda ell: K.Matern52(ell).gram(X, X[:2]))(lengthscales)
    for ell, gram in zip(lengthscales, batched, strict=True):
        np.testing.assert_allclose(gram, K.Matern52(ell).gram(X, X[:2]), rtol=1e-13)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: K.Matern32().gram(jnp.ones(3)), r"X must have shape \[N, D\], got \[3\]; pass X\[:, None\]"),
        (lambda: K.Linear().diag(jnp.ones((1, 1, 1))), r"got \[1, 1, 1\]"),
        (lambda: K.Matern32([1.0, 2.0]).gram(jnp.ones((3, 3))), r"Matern32.lengthscale has 2 entries .* 3 dimensions"),
        (lambda: K.Matern32([1.0, 2.0])(jnp.ones(3), jnp.ones(3)), r"Matern32.lengthscale has 2 entries"),
        (lambda: K.Matern32([[1.0, 2.0]]).gram(jnp.ones((3, 2))), r"lengthscale has the shape \[1, 2\]"),
        (lambda: K.Linear([1.0, 2.0]).gram(jnp.ones((3, 1))), r"Linear.variance has 2 entries"),
        (lambda: K.Periodic(K.Matern32(), [1.0, 2.0]).gram(jnp.ones((3, 1))), r"Periodic.period has 2 entries"),
        (lambda: K.Matern32().gram(jnp.ones((3, 2)), jnp.ones((3, 1))), r"X has 2 columns and X2 has 1"),
        (lambda: K.ActiveDims(K.Matern32(), (0, 2)).gram(jnp.ones((3, 2))), r"\(0, 2\).*2 dimensions"),
        (lambda: K.ActiveDims(K.Matern32(), (-1,)), r"counted from 0"),
        (lambda: K.Matern32(lengthscale=[1.0, -2.0]), r"Matern32.lengthscale must be positive"),
        (lambda: K.ArcCosine(3), r"order must be 0, 1 or 2"),
        (lambda: K.Polynomial(0), r"degree must be a whole number"),
        (lambda: K.ChangePoint((K.Linear(), K.Linear()), [0.0, 1.0]), r"one entry fewer"),
        (lambda: K.ChangePoint((K.Linear(),) * 3, [1.0, 0.0]), r"increasing"),
        (lambda: K.ChangePoint((K.Linear(),) * 2, [0.0], dim=2).gram(jnp.ones((1, 2))), r"dim is 2"),
        (lambda: K.Coregion([[1.0], [2.0]], [1.0]), r"kappa"),
    ],
)
def test_errors_name_the_cure(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_draws_of_rough_processes_are_gaussian_between_their_inducing_points():
    """Few frequencies of a Matérn process are high: with equal shares of the variance, one draw in forty left five
    standard deviations of q(f), and the fourth moment was ten times a Gaussian's."""
    X = jnp.linspace(0.0, 10.0, 60)[:, None]
    features = ig.features.InducingPoints(jnp.linspace(0.0, 10.0, 11)[:, None])
    gp = ig.SparseGP(ig.GP(K.Matern52(3.0)), features, root=0.01 * jnp.eye(11))
    draw = jax.jit(jax.vmap(lambda key: gp.draw(key, 1024, 1)(X)[:, 0]))
    deviation = jnp.sqrt(gp.marginals(X)[1][:, 0])[None]
    z = draw(jax.random.split(jax.random.key(0), 400)) / deviation
    np.testing.assert_allclose(jnp.mean(z**2), 1.0, atol=0.1)
    assert float(jnp.max(jnp.mean(z**4, axis=0) / jnp.mean(z**2, axis=0) ** 2)) < 6.0 and float(jnp.abs(z).max()) < 6.0


def test_features_of_several_products_are_close_for_every_key():
    """In any order of the factors: what is a product already must not always meet the same partner."""
    first = K.ActiveDims(K.Coregion([[1.0], [0.8], [0.3]], [0.1] * 3), 1)
    second = K.ActiveDims(K.Coregion([[1.0], [-0.5], [0.6]], [0.1] * 3), 2)
    kernel = K.ActiveDims(K.SquaredExponential(), 0) * first * second
    x = jnp.array([[0.2, 0.0, 1.0]])
    sizes = [jnp.sum(kernel.random_features(key, 1024, 3)(x) ** 2) for key in jax.random.split(jax.random.key(0), 5)]
    np.testing.assert_allclose(sizes, float(kernel.diag(x)[0]), rtol=0.3)


def test_a_lengthscale_in_a_list_serves_on_the_sphere():
    X, key = jnp.array([[1.0, 2.0, 3.0]]), jax.random.key(0)
    number, listed = (K.Spherical(K.SquaredExponential(value)).random_features(key, 8, 3)(X) for value in (0.5, [0.5]))
    np.testing.assert_array_equal(listed, number)
    np.testing.assert_allclose(jnp.sum(number**2), 1.0, rtol=1e-12)


def test_unknown_categories_are_refused_before_anything_is_compiled():
    kernel = K.ActiveDims(K.SquaredExponential(), 0) * K.ActiveDims(K.Coregion([[1.0], [-1.0]], [0.1, 0.1]), 1)
    X = np.array([[0.0, 0.0], [0.5, 1.0], [1.0, 1.0 - 1e-12]])
    gp = ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(X))
    model, wrong = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), np.array([[0.0, 0.0], [0.0, 2.0], [0.0, 1.0]])
    np.testing.assert_array_equal(kernel.diag(X), jax.jit(lambda X: kernel.diag(X))(X))  # 1 − 1e-12 is 1
    for run in (
        lambda: ig.fit(model, (wrong, np.zeros(3)), progress=False),
        lambda: model.predict(wrong),
        lambda: ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(wrong)),
    ):
        with pytest.raises(ValueError, match=r"whole numbers from 0 to 1, got 2\.0.*random_subset"):
            run()


def test_additive_is_the_sum_of_kernels_of_single_columns():
    """Values and derivatives in reverse mode, of one column after the other."""
    X, weight = points(num=6), points(5, 6, 6)

    def by_columns(lengthscale, variance):
        return sum(K.ActiveDims(K.SquaredExponential(lengthscale[d], variance[d]), d).gram(X) for d in range(2))

    def value(gram):
        return lambda *parameters: jnp.sum(weight * gram(*parameters))

    parameters = jnp.asarray(L), jnp.asarray([0.9, 0.4])
    ours = value(lambda lengthscale, variance: K.Additive(lengthscale, variance).gram(X))
    np.testing.assert_allclose(K.Additive(*parameters).gram(X), by_columns(*parameters), rtol=1e-13)
    for one, other in zip(
        jax.grad(ours, (0, 1))(*parameters), jax.grad(value(by_columns), (0, 1))(*parameters), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-11)


def test_additive_starts_at_the_spread_of_each_column():
    x = np.array([[0.0, 0.0], [2.0, 200.0]])  # standard deviations 1 and 100
    [start] = K.Additive([1.0, 1.0]).start(x)
    assert start.value.tolist() == [1.0, 100.0] and not start.far
    assert K.Additive([1e-4, 1.0]).start(x)[0].far
    assert K.Additive([3.0, 2.0]).lengthscale_along(1) == 2.0
