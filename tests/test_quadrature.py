"""Quadrature rules against closed forms and dense integration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from inducing.numerics import cubature, quadrature, roots
from inducing.numerics.special import (
    beta_cdf,
    log1mexp,
    log_ndtr,
    log_ndtr_difference,
    log_ndtr_tower,
    log_sigmoid_tower,
    mills_ratio,
)

DENSE = np.linspace(-9, 9, 400001)
DENSE_WEIGHTS = np.exp(-0.5 * DENSE**2) / np.exp(-0.5 * DENSE**2).sum()


def test_rules_integrate_polynomials():
    mean, variance = jnp.array([0.5, -1.0]), jnp.array([0.3, 2.0])
    fourth = mean**4 + 6 * mean**2 * variance + 3 * variance**2
    np.testing.assert_allclose(quadrature.expectation(lambda f: f**4, mean, variance, 24), fourth, rtol=1e-9)
    got = quadrature.expectation(lambda f: f**4, mean, variance, 40, jnp.zeros(2), jnp.full(2, 0.1))
    np.testing.assert_allclose(got, fourth, rtol=1e-7)
    log = quadrature.log_expectation(lambda f: 2 * f, mean, variance, 80, mean + 2 * variance, jnp.ones(2))
    np.testing.assert_allclose(log, 2 * mean + 2 * variance, rtol=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_tensor_rule(dim):
    z, w = cubature.tensor_rule(dim, 20)
    np.testing.assert_allclose(w @ z, 0, atol=1e-9)
    np.testing.assert_allclose(np.einsum("k,ki,kj->ij", w, z, z), np.eye(dim), atol=1e-6)


def test_qmc_rule_is_fixed_and_accurate():
    z, w = cubature.qmc_rule(4, 1024)
    assert z.shape == (1024, 4) and w.sum() == pytest.approx(1)
    np.testing.assert_array_equal(z, cubature.qmc_rule.__wrapped__(4, 1024)[0])
    np.testing.assert_allclose(w @ z, 0, atol=1e-12)
    np.testing.assert_allclose(np.einsum("k,ki,kj->ij", w, z, z), np.eye(4), atol=0.02)


def test_root_of_singular_matrices():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(5, 4, 4))
    a[1, 2] = 0  # a deterministic latent
    a[2, 3] = a[2, 0]  # two equal latents
    a[3] = 0
    cov = jnp.asarray(a @ np.swapaxes(a, 1, 2))
    factor = cubature.root(cov)
    np.testing.assert_allclose(factor @ jnp.swapaxes(factor, 1, 2), cov, atol=1e-7)
    assert np.all(np.isfinite(jax.grad(lambda c: jnp.sum(cubature.root(c) ** 3))(cov)))


@pytest.mark.parametrize(
    ("tower", "g", "slope"),
    [
        (log_ndtr_tower, special.log_ndtr, lambda f: np.sqrt(2 / np.pi) / special.erfcx(-f / np.sqrt(2))),
        (log_sigmoid_tower, lambda f: -np.logaddexp(0, -f), lambda f: special.expit(-f)),
    ],
    ids=["probit", "logit"],
)
@pytest.mark.parametrize(
    ("variance", "rtol"), [(0.1, 1e-9), (2.0, 1e-7), (5.0, 1e-7), (100.0, 2e-5), (1e4, 1e-3), (1e6, 1e-3)]
)
def test_narrow_and_wide_gaussians(tower, g, slope, variance, rtol):
    """28 nodes serve standard deviations from 0.3 to 1000, value and both derivatives."""
    mean = np.array([-2.0, -0.7, 0.0, 1.0, 2.5]) * np.sqrt(min(variance, 100.0))
    f = mean[:, None] + np.sqrt(variance) * DENSE

    def fn(m, v):
        return quadrature.tower_expectation(tower, m, v, 28, jnp.zeros_like(m), 1.5)

    args = jnp.asarray(mean), jnp.full(5, variance)
    atol = 0.1 * rtol
    np.testing.assert_allclose(fn(*args), g(f) @ DENSE_WEIGHTS, rtol=rtol, atol=atol)
    dm, dv = jax.grad(lambda m, v: fn(m, v).sum(), (0, 1))(*args)
    np.testing.assert_allclose(dm, slope(f) @ DENSE_WEIGHTS, rtol=rtol, atol=atol)
    expected = (slope(f) * DENSE) @ DENSE_WEIGHTS / (2 * np.sqrt(variance))
    np.testing.assert_allclose(dv, expected, rtol=rtol, atol=atol if variance < 1e4 else 0.0)


def test_tower_expectation_at_a_point_and_in_both_modes():
    """At variance 0 the derivative with respect to it is ½ g''; second derivatives exist in both modes."""
    zero = jnp.zeros(1)

    def fn(m, v):
        return quadrature.tower_expectation(log_sigmoid_tower, m[None], v[None], 28, zero, 1.5)[0]

    m = jnp.asarray(0.7)
    s = special.expit(-0.7)
    np.testing.assert_allclose(jax.grad(fn, 1)(m, jnp.asarray(0.0)), -0.5 * s * (1 - s), rtol=1e-9)
    v = jnp.asarray(0.6)
    forward, reverse = jax.jacfwd(jax.grad(fn))(m, v), jax.grad(jax.grad(fn))(m, v)
    np.testing.assert_allclose(forward, reverse, rtol=1e-12)
    np.testing.assert_allclose(forward, 2 * jax.grad(fn, 1)(m, v), rtol=1e-7)  # Price


def test_tower_expectation_in_blocks_of_rows():
    """More Gaussians than a block holds, in any shape, the last block not full."""
    rng = np.random.default_rng(0)
    shape = (3, quadrature.ROWS // 2)
    mean, variance = jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.uniform(size=shape))
    zero = jnp.zeros(shape)
    got = quadrature.tower_expectation(log_ndtr_tower, mean, variance, 28, zero, 1.5)
    expected = quadrature.expectation(log_ndtr, mean, variance, 28, zero, zero + 1.5)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_crossings_take_few_values():
    """Of a normal cdf between ±40 in fewer than 24 values, where bisections and Newton took 36; stairs as well."""
    q, calls = jnp.asarray([1e-6, 0.025, 0.3, 0.975]), []
    ends = jnp.full(4, -40.0), jnp.full(4, 40.0)

    def fn(x):
        jax.debug.callback(lambda: calls.append(1))
        return jax.scipy.special.ndtr(jnp.sinh(x)) - q

    np.testing.assert_allclose(np.sinh(roots.crossing(fn, *ends, 34)), special.ndtri(q), rtol=1e-12)
    jax.effects_barrier()
    assert len(calls) < 24
    stairs = roots.crossing(lambda x: jnp.floor(x / 0.7) * 0.1 + 0.35, *ends, 34)
    np.testing.assert_allclose(stairs, -2.1, atol=1e-6)
    narrow = roots.crossing(lambda x: jax.scipy.special.ndtr((x - 3.3) * 1e6) - q, *ends, 34)
    np.testing.assert_allclose((narrow - 3.3) * 1e6, special.ndtri(q), atol=1e-4)
    unknown = roots.crossing(lambda x: jnp.where(x < 1, -1.0, jnp.nan), *ends, 34)
    np.testing.assert_allclose(unknown, 1.0, atol=1e-6)
    for sign in (-1.0, 1.0):  # no crossing: the end where the function is nearest to 0
        none = roots.crossing(lambda x, sign=sign: jnp.tanh(x) + 2 * sign, *ends, 34)
        np.testing.assert_allclose(none, -40.0 * sign, atol=1e-6)


def test_log_ndtr():
    """Relative accuracy of log Φ and its derivatives from −10⁶ to far right, where SciPy has them."""
    x = np.concatenate([-np.logspace(6, -3, 200), np.logspace(-3, 1.5, 200)])
    np.testing.assert_allclose(log_ndtr(jnp.asarray(x)), special.log_ndtr(x), rtol=1e-11)
    ratio = np.sqrt(2 / np.pi) / special.erfcx(-x / np.sqrt(2))
    np.testing.assert_allclose(jax.vmap(jax.grad(log_ndtr))(jnp.asarray(x)), ratio, rtol=1e-11)
    near = x[(x > -100) & (x < 8)]
    r = np.sqrt(2 / np.pi) / special.erfcx(-near / np.sqrt(2))
    np.testing.assert_allclose(jax.vmap(jax.grad(mills_ratio))(jnp.asarray(near)), -r * (near + r), rtol=1e-7)


def test_log_differences():
    a = jnp.asarray([-1e-12, -0.1, -0.69, -0.7, -5.0, -800.0])
    np.testing.assert_allclose(
        log1mexp(a), [np.log(-np.expm1(t)) if t > -1 else np.log1p(-np.exp(t)) for t in a], rtol=1e-12
    )
    lower = jnp.array([-np.inf, -1.0, 20.0, -21.0, 5.0, 0.0])
    upper = jnp.array([-3.0, 1.0, 21.0, -20.0, np.inf, 1e-9])
    expected = [special.log_ndtr(-3.0), np.log(special.ndtr(1) - special.ndtr(-1)), -203.917155, -203.917155]
    expected += [special.log_ndtr(-5.0), np.log(1e-9 / np.sqrt(2 * np.pi))]
    np.testing.assert_allclose(log_ndtr_difference(lower, upper), expected, rtol=1e-7)
    gradient = jax.grad(lambda f: log_ndtr_difference(lower - f, upper - f).sum())(jnp.asarray(0.3))
    assert np.isfinite(gradient)


@pytest.mark.parametrize(("dtype", "atol"), [(jnp.float64, 1e-10), (jnp.float32, 1e-5)])
def test_beta_cdf(dtype, atol):
    """Shapes from 1e-15 to 10⁴, at labels around the mean and far from it, and the derivatives by a, b and y."""
    rng = np.random.default_rng(0)
    a, b = 10.0 ** rng.uniform([[-15.0]] * 2, [[4.0]] * 2, size=(2, 4000))
    y = np.concatenate([rng.uniform(size=1500), 10.0 ** -rng.uniform(0.1, 30, 500), rng.beta(a[2000:], b[2000:])])
    y = np.clip(y, 1e-30, 1 - 1e-6)
    a, b, y = (jnp.asarray(v, dtype) for v in (a, b, y))
    exact = special.betainc(*(np.asarray(v, float) for v in (a, b, y)))
    large = np.asarray(a + b) > 100
    np.testing.assert_allclose(beta_cdf(a, b, y)[~large], exact[~large], atol=atol)
    np.testing.assert_allclose(beta_cdf(a, b, y)[large], exact[large], atol=1e-10 if dtype == jnp.float64 else 2e-4)


def test_slopes_of_beta_cdf():
    """By a, b and y, in both modes, against central differences of SciPy's."""
    at = [
        np.array([0.01, 0.5, 3.0, 40.0, 900.0]),
        np.array([2.0, 0.02, 1.0, 60.0, 1e4]),
        np.array([0.1, 0.9, 0.4, 0.45, 0.08]),
    ]
    arrays = [jnp.asarray(v) for v in at]
    for i in range(3):
        h = 1e-6 * at[i]
        up, down = (special.betainc(*(v + sign * h * (j == i) for j, v in enumerate(at))) for sign in (1, -1))
        forward = jax.jvp(lambda v, i=i: beta_cdf(*arrays[:i], v, *arrays[i + 1 :]), (arrays[i],), (jnp.ones(5),))[1]
        reverse = jax.grad(lambda *a: beta_cdf(*a).sum(), i)(*arrays)
        np.testing.assert_allclose(forward, (up - down) / (2 * h), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(reverse, forward, rtol=1e-12)
