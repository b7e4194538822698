"""Natural gradients: one step of length 1 is the optimum, in every form and coordinate system."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag

import inducing as ig
from inducing.layers import qu
from inducing.training.natural import natural_step

from .problems import regression, wave

X, y = wave()
data = ig.Data(X, y)


step = eqx.filter_jit(ig.natural_gradient_step)
collapse = eqx.filter_jit(ig.collapse)


def covariance(root):
    root = np.asarray(qu.expand(root))
    return root @ np.swapaxes(root, -1, -2)


def random_q(model, seed=0):
    """The model with another q(u), of the same form."""
    rng = np.random.default_rng(seed)
    gp = model.layers[-1]
    root = (
        np.tril(gp.root + 0.1 * rng.normal(size=gp.root.shape))
        if gp.root.shape[-2] > 1
        else 0.5 + rng.random(gp.root.shape)
    )
    mean = gp.mean + rng.normal(size=gp.mean.shape)
    return eqx.tree_at(lambda m: (m.layers[-1].mean, m.layers[-1].root), model, (mean, jnp.asarray(root)))


@pytest.mark.parametrize("coordinates", ["u", "v", "w"])
def test_a_step_of_length_one_is_the_collapsed_optimum(coordinates):
    model = random_q(regression(coordinates=coordinates))
    stepped = step(model, data)
    optimal = collapse(model, data)
    assert np.allclose(stepped.layers[0].mean, optimal.layers[0].mean, atol=1e-7)
    assert np.allclose(covariance(stepped.layers[0].root), covariance(optimal.layers[0].root), atol=1e-8)
    assert np.isclose(eqx.filter_jit(ig.elbo)(stepped, data), eqx.filter_jit(ig.collapsed_elbo)(model, data), rtol=1e-9)


def test_steps_are_the_same_process_in_all_coordinates():
    model = random_q(regression())
    grid = jnp.linspace(0.0, 4.0, 7)[:, None]
    results = []
    for c in "uvw":
        gp = model.layers[0].with_coordinates(c)
        stepped = step(ig.Model(gp, model.likelihood), data, 0.3)
        results.append(np.stack(stepped.layers[0].marginals(grid)))
    assert np.allclose(results[0], results[2], atol=1e-7)
    assert np.allclose(results[1], results[2], atol=1e-7)


def test_against_the_definition_in_natural_parameters():
    # θ₁ = S⁻¹m, θ₂ = −½S⁻¹ move by γ times the gradient with respect to the expectations (m, S + mmᵀ).
    rng = np.random.default_rng(3)
    M, gamma = 4, 0.2
    m, R = rng.normal(size=M), np.tril(rng.normal(size=(M, M))) + 2 * np.eye(M)
    A = rng.normal(size=(M, M))
    A = A @ A.T
    b = rng.normal(size=M)

    def objective(m, R):  # E_q[−½ uᵀAu + bᵀu] + ½ log |S|
        return b @ m - 0.5 * m @ A @ m - 0.5 * jnp.trace(A @ R @ R.T) + jnp.sum(jnp.log(jnp.abs(jnp.diagonal(R))))

    gm, gR = jax.grad(objective, argnums=(0, 1))(jnp.asarray(m), jnp.asarray(R))
    new_m, new_R = natural_step(jnp.asarray(m)[None], jnp.asarray(R)[None], gm[None], jnp.tril(gR)[None], gamma)
    S = R @ R.T
    grad_S = -0.5 * A + 0.5 * np.linalg.inv(S)
    grad_m = b - A @ m
    theta_1 = np.linalg.solve(S, m) + gamma * (grad_m - 2 * grad_S @ m)
    theta_2 = -0.5 * np.linalg.inv(S) + gamma * grad_S
    S_new = np.linalg.inv(-2 * theta_2)
    assert np.allclose(covariance(new_R)[0], S_new)
    assert np.allclose(new_m[0], S_new @ theta_1)


def test_coupled_root_of_independent_latents_moves_as_full_ones():
    rng = np.random.default_rng(1)
    L, M = 2, 3
    m = jnp.asarray(rng.normal(size=(L, M)))
    R = np.tril(rng.normal(size=(L, M, M))) + 2 * np.eye(M)
    gm = jnp.asarray(rng.normal(size=(L, M)))
    gR = np.tril(0.1 * rng.normal(size=(L, M, M)))
    full = natural_step(m, jnp.asarray(R), gm, jnp.asarray(gR), 0.5)
    coupled = natural_step(m, jnp.asarray(block_diag(*R)), gm, jnp.asarray(block_diag(*gR)), 0.5)
    assert np.allclose(full[0], coupled[0])
    assert np.allclose(block_diag(*covariance(full[1])), covariance(coupled[1]))


def test_diagonal_root_reaches_the_best_diagonal_q():
    # For a Gaussian posterior N(μ, Λ⁻¹) the best factorised q has precisions Λ_ii: a step of length 1 finds them.
    model = random_q(regression(root=np.ones(16)))
    stepped = step(model, data)
    precision = np.linalg.inv(covariance(collapse(model, data).layers[0].root)[0])
    assert np.allclose(stepped.layers[0].root[0, 0] ** -2.0, np.diagonal(precision), rtol=1e-8)


def test_length_is_halved_until_the_covariance_is_positive():
    one = jnp.ones((1, 1))
    # B = 1 − γ R R̄ with R̄ = 5: γ = 1 and ½ and ¼ give B < 0, 1/8 gives 3/8.
    m, root = natural_step(0.0 * one, one[None], one, 5.0 * one[None], 1.0)
    assert np.isclose(root[0, 0, 0] ** 2, 8.0 / 3.0)
    assert np.isclose(m[0, 0], 1.0 / 3.0)
    R = jnp.eye(2)[None]
    _, root = natural_step(jnp.zeros((1, 2)), R, jnp.ones((1, 2)), 5.0 * R, 1.0)
    assert np.allclose(covariance(root)[0], 8.0 / 3.0 * np.eye(2))


@pytest.mark.parametrize("form", ["full", "diagonal", "coupled"])
def test_length_is_halved_until_q_moves_within_reach(form):
    # R̄ = 0, so that S = 4 stays, and m moves by γ S m̄, by 200γ: 3.125 at γ = 1/64, within reach from |m| = 2.
    root = {"full": 2.0 * jnp.ones((1, 1, 1)), "diagonal": 2.0 * jnp.ones((1, 1, 2)), "coupled": 2.0 * jnp.eye(2)}[form]
    m_bar = jnp.array([[50.0] if form == "full" else [30.0, 40.0]])
    m, new = natural_step(0.0 * m_bar, root, m_bar, 0.0 * root, 1.0, 3.0)
    assert np.allclose(m, 4.0 * m_bar / 128) and np.allclose(new, root)
    m, _ = natural_step(0.04 * m_bar, root, m_bar, 0.0 * root, 1.0, 3.0)
    assert np.allclose(m, 0.04 * m_bar + 4.0 * m_bar / 64)
    assert np.allclose(natural_step(0.0 * m_bar, root, m_bar, 0.0 * root, 1.0)[0], 4.0 * m_bar)


def test_counts_far_from_a_zero_mean_train():
    # The natural step from f = 0, where the counts' curvature is e⁰, had led to f = 1000, and from there nowhere.
    rate = 1e6 * np.exp(3.0 * np.sin(3.0 * X[:, 0]))
    counts = np.random.default_rng(0).poisson(rate).astype(float)
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(np.linspace(0, 4, 50)[:, None]))
    trained = ig.fit(ig.Model(gp, ig.likelihoods.Poisson()), (X, counts), steps=500, progress=False)
    assert trained.method == "natgrad" and "NaN" not in trained.message
    assert np.abs(trained.model.predict(X).mean[:, 0] / rate - 1.0).mean() < 0.02  # it was 1 − 1e-4


def test_a_scale_far_from_a_zero_mean_trains():
    # There the curvature (y/e^f)^k makes q(u) narrow at f = 0: it must be able to leave by many of its deviations.
    scale = 1e8 * np.exp(np.sin(3.0 * X[:, 0]))
    labels = scale * np.random.default_rng(0).exponential(size=len(X))
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(np.linspace(0, 4, 10)[:, None]))
    trained = ig.fit(ig.Model(gp, ig.likelihoods.Weibull()), (X, labels), steps=500, progress=False)
    assert np.abs(np.log(trained.model.predict(X).mean[:, 0] / scale)).mean() < 0.7  # of one label it is 1.3


def test_only_sparse_gp_layers_take_natural_gradients():
    model = regression()
    with pytest.raises(IndexError, match="layer=3 is none of the 1 layers"):
        ig.natural_gradient_step(model, (X, y), layer=3)
    deep = ig.Model([ig.Deterministic(jnp.sin), *model.layers], model.likelihood)
    with pytest.raises(TypeError, match=r"layers\[0\] is a Deterministic; natural gradients are for SparseGP layers"):
        ig.natural_gradient_step(deep, (X, y), layer=0)
    with pytest.raises(TypeError, match=r"layer\(model\) is a Gaussian; natural gradients are for SparseGP layers"):
        ig.natural_gradient_step(deep, (X, y), layer=lambda m: m.likelihood)
