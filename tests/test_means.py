"""Mean functions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing import means

X = np.random.default_rng(0).normal(size=(5, 3))
A = np.random.default_rng(1).normal(size=(3, 2))
K = ig.kernels.SquaredExponential()


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        (means.Zero(), np.zeros(5)),
        (means.Constant(1.5), np.full(5, 1.5)),
        (means.Constant([1.5, 2.5]), np.tile([1.5, 2.5], (5, 1))),
        (means.Linear(A[:, 0], 0.5), X @ A[:, 0] + 0.5),
        (means.Linear(A, [0.5, 1.0]), X @ A + [0.5, 1.0]),
        (means.Linear(A, 0.5), X @ A + 0.5),
        (means.Identity(), X),
        (means.Function(lambda x: jnp.sin(x).sum()), np.sin(X).sum(1)),
        (means.Function(jnp.sin), np.sin(X)),
        (means.Constant(2.0) + means.Linear(A[:, 0]), 2 + X @ A[:, 0]),
        (means.Linear(A) + means.Constant(2.0), X @ A + 2),
        (means.Zero() * means.Identity() + 1.0, np.ones((5, 3))),
        (np.float64(2.0) * means.Identity(), 2 * X),
        (means.Linear(A[:, 0]) * means.Linear(A), (X @ A[:, 0])[:, None] * (X @ A)),
    ],
)
def test_values(mean, expected):
    got = jax.jit(lambda m, x: m(x))(mean, jnp.asarray(X)) if not _has_function(mean) else mean(jnp.asarray(X))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-15)


def _has_function(mean):
    return isinstance(mean, means.Function)


def test_any_equinox_module_is_a_mean_and_trains():
    net = eqx.nn.MLP(3, "scalar", 8, 1, key=jax.random.key(0))
    mean = means.Function(net)
    np.testing.assert_allclose(mean(jnp.asarray(X))[2], net(jnp.asarray(X[2])), rtol=1e-12)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m: m(jnp.asarray(X)).sum()))(mean)
    assert float(jnp.abs(gradient.function.layers[0].weight).max()) > 0


def test_float32():
    x = X.astype(np.float32)
    for mean in (means.Zero(), means.Identity(), means.Linear(A.astype(np.float32), np.float32(1.0))):
        assert mean(jnp.asarray(x)).dtype == jnp.float32


@pytest.mark.parametrize(
    "prior",
    [
        lambda mean: ig.GP(K, mean),
        lambda mean: ig.priors.Independent(K, num=1, mean=mean),
        lambda mean: ig.priors.LMC([[1.0]], K, mean=mean),
        lambda mean: ig.priors.IntrinsicCoregionalisation([1.0], [1.0], K, mean=mean),
        lambda mean: ig.priors.ConvolutionProcess(ig.priors.GaussianSmoothing([[1.0]]), K, mean=mean),
        lambda mean: ig.priors.ImageConvolution(K, (1, 3), (1, 3), mean=mean),
        lambda mean: ig.priors.MatrixValued(K, num_outputs=1, mean=mean),
    ],
)
def test_a_prior_takes_means_and_numbers_and_says_how_to_wrap_functions(prior):
    for mean, value in ((None, 0.0), (1.5, 1.5), (2, 2.0), (means.Constant(0.5), 0.5)):
        np.testing.assert_allclose(prior(mean).mean(jnp.asarray(X)), np.full((5, 1), value), rtol=1e-14)
    for wrong, cure in ((jnp.sin, r"means.Function\(h\)"), (eqx.nn.Identity(), "means.Function"), ([1.0], "Constant")):
        with pytest.raises(TypeError, match=cure):
            prior(wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: means.Linear(A)(jnp.ones((2, 4))), "3 rows but the inputs have 4 dimensions"),
        (lambda: means.Linear(A, [1.0, 2.0, 3.0]), "one per output"),
        (lambda: (means.Linear(A) + means.Identity())(jnp.ones((2, 3))), "2 and 3 outputs"),
        (lambda: means.Constant(np.inf), "Constant.value must be real"),
    ],
)
def test_errors_name_the_cure(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_means_answer_whether_they_are_zero_or_constant():
    zero, constant, linear = ig.means.Zero(), ig.means.Constant(2.0), ig.means.Linear([1.0])
    assert zero.is_zero and zero.is_constant
    assert constant.is_constant and not constant.is_zero
    assert not linear.is_constant and not ig.means.Identity().is_constant
    assert (zero + zero).is_zero and (zero * linear).is_zero
    assert (constant + constant).is_constant and not (constant + linear).is_constant
    assert (constant * constant).is_constant and (zero * linear).is_constant


def test_constants_start_at_the_centre_of_the_labels():
    one, several = ig.means.Constant(), ig.means.Constant([1.0, 5.0])
    [start] = one.start(np.array([2.0, 4.0]))
    assert start.leaf is one.value and start.value == 3.0 and not start.far
    assert one.start(np.array([np.nan, 4.0])) == []
    [start] = several.start(np.array([np.nan, 4.0]))  # an output without labels keeps its value
    np.testing.assert_allclose(start.value, [1.0, 4.0])
    assert ig.means.Linear([1.0]).start(np.array([2.0])) == []


def test_units_of_means():
    size, spread = jnp.asarray(3.0), jnp.array([1.0, 20.0])
    linear = ig.means.Linear([[1.0], [2.0]], bias=0.5)
    (weights, slope), (bias, unit) = linear.units(size, spread)
    assert weights is linear.weights and bias is linear.bias and unit == 3.0
    np.testing.assert_allclose(slope, [[3.0], [0.15]])
    np.testing.assert_allclose(linear.units(size, jnp.ones(()))[0][1], 3.0)  # nothing is known of the inputs
    several = ig.means.Constant([1.0, 5.0])
    assert several.units(size, spread)[0] == (several.value, size)
    assert ig.means.Zero().units(size, spread) == []
