"""Constraints: round trips, Jacobians, checks, tying and freezing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jaxtyping import Array

import inducing as ig
from inducing.parameters import (
    Module,
    as_float_array,
    check,
    constrain,
    dtype_of,
    fixed,
    log_jacobian,
    lower_triangular,
    ordered,
    parameters,
    partition,
    positive,
    real,
    unconstrain,
    unit_interval,
)


class Every(Module):
    real: Array = real()
    positive: Array = positive()
    unit: Array = unit_interval()
    ordered: Array = ordered()
    root: Array = lower_triangular()
    constant: Array = fixed(7.0)


def _every(x, p, u, steps, root):
    return Every(x, p, u, np.cumsum(steps) - 3.0, np.tril(root))


def floats(low, high, size):
    return arrays(float, size, elements=st.floats(low, high))


values = st.builds(
    _every,
    floats(-1e6, 1e6, 3),
    floats(1e-12, 1e12, 2),
    floats(1e-6, 1 - 1e-6, 2),
    floats(1e-3, 10.0, 4),
    floats(-2.0, 2.0, (3, 3)),
)


@given(values)
def test_round_trip(tree):
    back = constrain(unconstrain(tree))
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    assert float(back.constant) == 7.0


@given(floats(-5.0, 5.0, 13))
def test_constrain_satisfies_the_constraints(x):
    """Any real numbers are valid unconstrained values."""
    parts = x[:3], x[3:5], x[5:7], x[7:11], np.tril(np.full((2, 2), x[11])), x[12]
    like = Every(np.zeros(3), np.ones(2), np.full(2, 0.5), np.arange(4.0), np.eye(2))
    free = eqx.tree_at(lambda t: tuple(jax.tree.leaves(t)), like, tuple(jnp.asarray(p) for p in parts))
    check(constrain(free))


def test_log_jacobian():
    """log |det| of the dense Jacobian of each bijection, by automatic differentiation."""
    tree = _every(np.ones(3), np.array([0.5, 3.0]), np.array([0.2, 0.9]), np.array([0.1, 1.0, 2.0, 0.5]), np.eye(3))
    free = unconstrain(tree)
    total = 0.0
    for name in ("positive", "unit", "ordered"):
        x = getattr(free, name)
        J = jax.jacobian(lambda v, n=name: getattr(constrain(eqx.tree_at(lambda t: getattr(t, n), free, v)), n))(x)
        total += np.linalg.slogdet(J)[1]
    np.testing.assert_allclose(log_jacobian(free), total, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ig.kernels.Matern52(lengthscale=-1.0), ["Matern52.lengthscale", "positive", "-1.0", "greater than 0"]),
        (lambda: ig.kernels.Matern52(variance=0.0), ["Matern52.variance", "positive", "0.0"]),
        (lambda: ig.kernels.Matern52(variance=np.nan), ["Matern52.variance", "nan"]),
        (lambda: ig.likelihoods.Gaussian(variance=[0.1, -0.2]), ["Gaussian.variance", "-0.2"]),
        (lambda: Every(np.zeros(1), np.ones(1), np.ones(1), np.arange(2.0), np.eye(2)), ["Every.unit", "(0, 1)"]),
        (
            lambda: Every(np.zeros(1), np.ones(1), np.full(1, 0.5), np.zeros(2), np.eye(2)),
            ["Every.ordered", "increasing"],
        ),
        (
            lambda: Every(np.zeros(1), np.ones(1), np.full(1, 0.5), np.arange(2.0), np.ones((2, 2))),
            ["Every.root", "lower triangular", "Cholesky"],
        ),
        (lambda: Every(np.inf, np.ones(1), np.full(1, 0.5), np.arange(2.0), np.eye(2)), ["Every.real", "inf"]),
    ],
)
def test_bad_values_are_refused(make, words):
    with pytest.raises(ValueError) as error:
        make()
    for word in words:
        assert word in str(error.value)


def test_text_is_refused():
    with pytest.raises(TypeError, match=r"Matern52\.lengthscale"):
        ig.kernels.Matern52(lengthscale="long")


def test_check_finds_what_tree_at_hides():
    kernel = eqx.tree_at(lambda k: k.variance, ig.kernels.Matern52(), jnp.asarray(-2.0))
    with pytest.raises(ValueError, match=r"Matern52\.variance must be positive, got -2\.0"):
        check(kernel)


def test_a_python_number_that_tree_at_put_in_place_of_a_parameter_is_refused():
    """It is no array, so it would neither train nor be checked."""
    layer = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    model = ig.Model(layer, ig.likelihoods.Gaussian(0.1))
    model = eqx.tree_at(lambda m: m.layers[0].prior.kernel.variance, model, 2.0)
    with pytest.raises(TypeError, match=r"kernel.variance is the Python number 2.0.*jnp.asarray\(2.0\)"):
        ig.fit(model, ([0.0, 1.0], [0.0, 1.0]), progress=False)


def test_traced_values_are_not_checked():
    """Construction works under jit, grad and vmap."""

    def f(v):
        return ig.kernels.Matern52(variance=v).variance ** 2

    assert float(jax.jit(jax.grad(f))(jnp.asarray(3.0))) == 6.0
    assert jax.vmap(f)(jnp.ones(2)).shape == (2,)


def test_parameters_names_and_constraints():
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0]]))
    found = {name: constraint.name for name, _, constraint in parameters(ig.Model(gp, ig.likelihoods.Gaussian()))}
    assert found[".layers[0].prior.kernel.lengthscale"] == "positive"
    assert found[".layers[0].root"] == "lower triangular"
    assert found[".layers[0].features.Z"] == "real"


def test_a_module_used_twice_stays_tied():
    shared = ig.kernels.Matern52(lengthscale=2.0)
    split = partition((shared, ig.kernels.Matern52(lengthscale=2.0), shared))
    assert len(split.free) == 4
    moved = eqx.tree_at(lambda p: p.free, split, [x + 1.0 for x in split.free])
    a, _, c = moved.model()
    assert float(a.lengthscale) == float(c.lengthscale)
    np.testing.assert_allclose(a.lengthscale, 2.0 * np.e, rtol=1e-12)


def test_two_modules_from_one_array_are_independent():
    scale = jnp.asarray(2.0)
    assert len(partition((ig.kernels.Matern52(scale), ig.kernels.Matern52(scale))).free) == 4


def test_frozen_and_fixed_parts_keep_their_values():
    tree = (ig.kernels.Matern52(2.0, 3.0), Every(np.zeros(1), np.ones(1), [0.5], [0.0, 1.0], np.eye(2)))
    split = partition(tree, freeze=lambda t: t[0].variance)
    assert len(split.free) == 6
    moved = eqx.tree_at(lambda p: p.free, split, [x + 1.0 for x in split.free]).model()
    assert float(moved[0].variance) == 3.0 and float(moved[1].constant) == 7.0
    assert float(moved[0].lengthscale) != 2.0
    np.testing.assert_array_equal(np.triu(moved[1].root, 1), 0.0)


def test_partition_round_trip_and_replace():
    tree = _every(np.ones(3), np.ones(2), np.full(2, 0.3), np.ones(4), np.eye(3))
    other = _every(np.zeros(3), 2 * np.ones(2), np.full(2, 0.6), np.full(4, 2.0), 2 * np.eye(3))
    split = partition(tree)
    for a, b in zip(jax.tree.leaves(split.replace(other).model()), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "freeze", [lambda m: None, lambda m: "kernel", lambda m: jnp.ones(3), lambda m: ig.kernels.Matern52()]
)
def test_freezing_what_is_no_part_of_the_model_is_refused(freeze):
    with pytest.raises(ValueError, match="freeze must return parts of the model"):
        partition(ig.kernels.Matern52(), freeze)


@pytest.mark.parametrize("freeze", [lambda m: m.mean_function, lambda m: (), lambda m: (m.mean_function, m.kernel)])
def test_freezing_a_part_without_parameters_freezes_nothing(freeze):
    prior = ig.GP(ig.kernels.Matern52(), ig.means.Zero())
    assert len(partition(prior, freeze).free) == 2 - len(jax.tree.leaves(freeze(prior)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ig.likelihoods.StudentT(df=-1.0), "StudentT.df must be positive, got -1.0"),
        (lambda: ig.likelihoods.Poisson(exposure=-1.0), "Poisson.exposure must be positive, got -1.0"),
        (
            lambda: ig.likelihoods.Binomial(-3),
            "Binomial.total_count must be whole numbers from 0 to 2147483647, got -3.0",
        ),
        (
            lambda: ig.likelihoods.Binomial(2.5),
            "Binomial.total_count must be whole numbers from 0 to 2147483647, got 2.5",
        ),
        (lambda: ig.likelihoods.Binomial(ig.likelihoods.PerDatum([2.0, 1.5], new=1)), "whole numbers .* got 1.5"),
        (lambda: ig.likelihoods.Softmax(1), "Softmax.num_classes must be a whole number from 2 to 2147483647, got 1"),
        (
            lambda: ig.likelihoods.RobustMax(0),
            "RobustMax.num_classes must be a whole number from 2 to 2147483647, got 0",
        ),
        (lambda: ig.likelihoods.RobustMax(3, 1.0), r"RobustMax.epsilon must be in \(0, 1\), got 1.0"),
        (lambda: ig.BayesianDense(1, 1, prior_scale=0.0), "BayesianDense.prior_scale must be positive"),
        (lambda: ig.BayesianDense(1, 1, prior_mean=np.inf), "BayesianDense.prior_mean must be real"),
    ],
)
def test_bad_constants_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_check_finds_bad_constants():
    likelihood = eqx.tree_at(lambda v: v.df, ig.likelihoods.StudentT(), jnp.asarray(-2.0))
    with pytest.raises(ValueError, match=r"StudentT\.df must be positive, got -2\.0"):
        check(likelihood)


def test_dtype_follows_the_parameters():
    kernel = ig.kernels.Matern52(np.float32(1.0), np.float32(2.0))
    assert dtype_of(kernel) == jnp.float32
    assert dtype_of(ig.kernels.Matern52()) == jnp.float64
    assert dtype_of() == jnp.float64
    assert as_float_array(np.float32(1.0)).dtype == jnp.float32
    assert as_float_array(3).dtype == jnp.float64


@pytest.mark.parametrize("value", [None, 1j, np.ones(2, complex)])
def test_what_is_no_real_number_is_refused(value, unchecked):
    for make in (ig.kernels.Matern52, ig.likelihoods.Gaussian):
        with pytest.raises(TypeError, match=r"must be (real )?numbers"):
            make(value)
