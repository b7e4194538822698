"""Gradients of the bound: against finite differences, and doubly reparameterised ones."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.bounds.terms import log_weights

from .bounds import DATA, KEY, NOISE, UNSUPERVISED, N, deep_latent_gp, gp, linear, linear_decoder, two_latents


def test_doubly_reparameterised_gradients_of_two_encoders_are_unbiased():
    def gradients(doubly):
        def gradient(key):
            options = {"importance": 4, "beta": 0.8, "doubly_reparameterised": doubly}
            g = eqx.filter_grad(lambda m: ig.elbo(m, DATA, key=key, **options))(two_latents())
            parts = [p for i in (0, 2) for p in (g.layers[i].encoder.mean, g.layers[i].encoder.scale)]
            return jnp.stack([p.sum() for p in parts]), g.layers[1].function.weight

        return jax.jit(lambda ks: jax.lax.map(gradient, ks, batch_size=100))(jax.random.split(KEY, 3000))

    (plain, decoder), (doubly, same) = gradients(False), gradients(True)
    np.testing.assert_allclose(decoder, same, rtol=1e-8, atol=1e-10)
    error = np.hypot(np.std(plain, axis=0), np.std(doubly, axis=0)) / np.sqrt(3000)
    assert (np.abs(np.mean(plain, axis=0)) > 4.5 * error).any()  # so that there is something to compare
    np.testing.assert_array_less(np.abs(np.mean(plain, axis=0) - np.mean(doubly, axis=0)), 4.5 * error)


def amortised_network():
    """[x, h] through a Bayesian dense layer, then a GP, with an amortised encoder."""
    latent = ig.LatentVariable(1, ig.layers.Amortised.mlp(KEY, 1, x=1, y=1, hidden=(3, 1)), scale=[1.2])
    dense = ig.BayesianDense(2, 2, key=KEY, scale=0.3)
    return ig.Model([latent, dense, gp(D=2)], ig.likelihoods.Gaussian(NOISE))


CASES = [
    (deep_latent_gp, {"importance": 2}),
    (deep_latent_gp, {"importance": 3, "integrate": False}),
    (amortised_network, {"importance": 1}),
    (amortised_network, {"importance": 3}),
]


@pytest.mark.parametrize(("make", "options"), CASES)
def test_gradients_against_finite_differences(make, options):
    model = make()
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    flat, unravel = jax.flatten_util.ravel_pytree(arrays)
    both = jax.jit(jax.value_and_grad(lambda v: ig.elbo(eqx.combine(unravel(v), static), DATA, key=KEY, **options)))
    gradient = both(flat)[1]
    for seed in range(3):
        direction = jax.random.normal(jax.random.key(seed), flat.shape)
        eps = 1e-5
        difference = (both(flat + eps * direction)[0] - both(flat - eps * direction)[0]) / (2 * eps)
        np.testing.assert_allclose(gradient @ direction, difference, rtol=2e-6)


def encoder_gradients(model, data, num, **options):
    def gradient(key):
        value, g = eqx.filter_value_and_grad(lambda m: ig.elbo(m, data, key=key, **options))(model)
        return g.layers[0].encoder.mean.sum(), g.layers[-1], value

    run = eqx.filter_jit(lambda ks: jax.lax.map(gradient, ks, batch_size=100))
    return run(jax.random.split(jax.random.key(3), num))


def latent_gp_with_a_skip():
    """[x, h] handed on beside a GP of them, which is drawn jointly over the replicates."""
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(0.3 * np.ones((N, 1)), scale=0.6))
    last = ig.layers.Deterministic(eqx.nn.Linear(3, 1, key=KEY))
    return ig.Model([latent, ig.Skip(gp(D=2, root=1.0)), last], ig.likelihoods.Gaussian(NOISE))


@pytest.mark.parametrize(("make", "beta"), [(linear_decoder, 0.5), (deep_latent_gp, 0.7)])
def test_doubly_reparameterised_gradients_are_unbiased(make, beta):
    """The same value and decoder gradient for each key, and the encoder gradient in expectation: also when a GP is
    drawn jointly over the replicates, so that a weight depends on all latent variables of its datum."""
    model, R, num = make(), 3, 2000
    data = UNSUPERVISED if make is linear_decoder else DATA
    options = {"importance": R, "beta": beta}
    plain, decoder, values = encoder_gradients(model, data, num, **options)
    doubly, same, others = encoder_gradients(model, data, num, doubly_reparameterised=True, **options)
    np.testing.assert_allclose(others, values, rtol=1e-12)
    for a, b in zip(jax.tree.leaves(decoder), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    error = np.hypot(np.std(plain), np.std(doubly)) / np.sqrt(num)
    assert abs(np.mean(plain) - np.mean(doubly)) < 4.5 * error


class Lines(ig.layers.AbstractLayer):
    """A layer of one's own: f(x) = a·x, a ~ N(0, I), by a root of the covariance of its values at the replicates."""

    random: ClassVar[bool] = True
    terminal: ClassVar[bool] = False

    def propagate(self, x, key, data, replicates):
        N, R, _ = x.shape
        root = jnp.linalg.cholesky(x @ jnp.swapaxes(x, 1, 2) + 0.1 * jnp.eye(R)[None])
        return root @ jax.random.normal(key, (N, R, 1)), jnp.zeros((N, R))

    def kl(self):
        return jnp.zeros(())

    def width(self, inputs):
        return 1

    cache = moments = joint = draw = None


def latent_model_of_ones_own():
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(0.3 * np.ones((N, 1)), scale=0.6))
    return ig.Model([latent, Lines(), linear(0.8)], ig.likelihoods.Gaussian(NOISE))


@pytest.mark.parametrize("make", [deep_latent_gp, latent_gp_with_a_skip, latent_model_of_ones_own])
def test_doubly_reparameterised_gradients_couple_the_replicates_of_a_gp(make):
    """Σ_rs c_rs ∂log w_s/∂h_r, c_rs = ω_s − β ω_r (δ_rs − ω_s), by the whole Jacobian, wherever the GP stands."""
    model, R, beta = make(), 3, 0.7

    def shifted(shift):
        return log_weights(model, DATA, KEY, R, beta, True, {0: shift})

    value, J = jax.jit(lambda z: (shifted(z), jax.jacobian(shifted)(z)))(jnp.zeros((N, R, 1)))
    J = np.einsum("nsnr->nsr", np.asarray(J)[..., 0])
    omega = np.exp(value - np.log(np.exp(value).sum(axis=1, keepdims=True)))
    c = omega[:, None] - beta * omega[:, :, None] * (np.eye(R)[None] - omega[:, None])  # [N, r, s]
    options = {"key": KEY, "importance": R, "beta": beta, "doubly_reparameterised": True}
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m: ig.elbo(m, DATA, **options)))(model)
    np.testing.assert_allclose(gradient.layers[0].encoder.mean[:, 0], np.einsum("nrs,nsr->n", c, J), rtol=1e-8)


def test_doubly_reparameterised_gradients_are_less_noisy():
    model = linear_decoder()
    plain, *_ = encoder_gradients(model, UNSUPERVISED, 300, importance=50)
    doubly, *_ = encoder_gradients(model, UNSUPERVISED, 300, importance=50, doubly_reparameterised=True)
    assert np.std(doubly) < 0.3 * np.std(plain)
