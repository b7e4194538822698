"""What layers and encoders answer about themselves, and what a layer that answers nothing gets."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.layers.base import start_stack

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def sparse_gp(D=1, P=1, **kwargs):
    kernels = [ig.kernels.Matern52(np.ones(D)) for _ in range(P)]
    prior = ig.GP(kernels[0]) if P == 1 else ig.priors.Independent([ig.GP(k) for k in kernels])
    return ig.SparseGP(prior, ig.features.InducingPoints(RNG.normal(size=(3, D))), **kwargs)


def encoder(N=4, d=1):
    return ig.layers.PerDatumEncoder(np.zeros((N, d)))


def ids(tree):
    return {id(leaf) for leaf in jax.tree.leaves(tree)}


class Doubling(ig.layers.AbstractLayer):
    """A user's layer that answers no question: f(x) = 2w x, with a parameter w."""

    w: jax.Array = ig.parameters.real(1.0)

    @property
    def random(self):
        return False

    @property
    def terminal(self):
        return True

    def propagate(self, x, key, data, replicates):
        return 2.0 * self.w * x, jnp.zeros(x.shape[:2], x.dtype)

    def cache(self):
        return None

    def moments(self, x, correlated=False, cache=None):
        f = 2.0 * self.w * x
        return f, jnp.zeros((*f.shape, f.shape[-1]) if correlated else f.shape, f.dtype)

    def joint(self, X, cache=None):
        f = 2.0 * self.w * X
        return f, jnp.zeros((len(X), f[0].size, f[0].size), f.dtype)

    def kl(self):
        return jnp.zeros(())

    def draw(self, key, num, dim):
        return lambda X, x=None: 2.0 * self.w * X

    def width(self, inputs):
        return inputs


def test_the_answers_of_sparse_gps():
    gp = sparse_gp(D=2)
    assert (gp.correlated, gp.couples_replicates, gp.num_inputs, gp.num_sites, gp.group_size) == (False, True, 2, 1, 1)
    assert ids(gp.variational()) == ids((gp.features, gp.mean, gp.root))
    assert ids(gp.gaussians()) == ids((gp.mean, gp.root)) and gp.per_datum() == () and gp.encoders() == ()
    f, log_ratio = gp.sample_global(jnp.zeros((2, 1, 2)), KEY, ig.Data(np.zeros((2, 2))), jnp.ones((2, 1)))
    assert f.shape == (2, 1, 1) and abs(float(f[0, 0, 0] - f[1, 0, 0])) < 1e-3 and log_ratio.shape == ()  # equal inputs
    assert gp.sample_latents(jnp.zeros((2, 1, 2)), KEY, ig.Data(np.zeros((2, 2))), 1) is None
    assert 0 < float(gp.relative_jitter()) < 1e-6
    mixed = ig.SparseGP(ig.priors.LMC([[1.0], [2.0]], ig.kernels.Matern52()), ig.features.InducingPoints([[0.0]]))
    assert mixed.correlated
    slopes = ig.SparseGP(
        ig.priors.Derivative(ig.GP(ig.kernels.Matern52()), dim=2), ig.features.InducingPoints(np.eye(2))
    )
    assert (slopes.correlated, slopes.num_sites, slopes.group_size) == (True, 2, 2)
    rows = ig.SparseGP(ig.priors.as_input(mixed.prior), mixed.features)
    assert rows.num_inputs == 2
    with pytest.raises(ValueError, match="the last column of the inputs holds 5"):
        rows.check_inputs(np.array([[0.0, 5.0]]))
    with pytest.raises(ValueError, match=r"layers\[1\].layers\[0\] takes rows \(x, p\)"):
        ig.Model([ig.LatentVariable(1), ig.Skip(rows), sparse_gp(3)], ig.likelihoods.Gaussian())


@pytest.mark.parametrize("coordinates", ["u", "v", "w"])
def test_a_fresh_layer_has_its_prior(coordinates):
    gp = sparse_gp(coordinates=coordinates)
    assert gp.is_fresh
    moved = sparse_gp(mean=[1.0, 2.0, 3.0], coordinates=coordinates)
    assert not moved.is_fresh and not ig.Skip([gp, moved]).is_fresh
    if coordinates != "w":
        assert moved.at_prior().is_fresh and ig.Skip([gp, moved]).at_prior().is_fresh
        diagonal = sparse_gp(mean=[1.0, 2.0, 3.0], root=[1.0, 1.0, 1.0], coordinates=coordinates).at_prior()
        assert diagonal.root.shape == (1, 1, 3)


def test_the_answers_of_weight_space_layers():
    dense, latent, tanh = ig.BayesianDense(2, 3), ig.LatentVariable(1, encoder()), ig.Deterministic(jnp.tanh)
    assert (dense.correlated, dense.num_inputs, dense.is_fresh) == (False, 2, True)
    assert ig.BayesianDense(2, 3, full=True).correlated and not ig.BayesianDense(2, 1, full=True).correlated
    assert ids(dense.variational()) == ids((dense.mean, dense.scale))
    assert not tanh.correlated and tanh.num_inputs is None and jax.tree.leaves(tanh.variational()) == []
    assert ids(latent.variational()) == ids(latent.per_datum()) == ids(latent.encoder)
    assert latent.encoders() == (latent.encoder,) and ig.LatentVariable(1).encoders() == () and latent.is_fresh
    amortised = ig.LatentVariable(1, ig.layers.Amortised.mlp(KEY, 1, x=1))
    assert jax.tree.leaves(amortised.per_datum()) == [] and ids(amortised.variational()) == ids(amortised.encoder)
    assert not any(layer.couples_replicates for layer in (dense, latent, tanh, ig.Skip([latent, dense])))
    with pytest.raises(ValueError, match=r"Gaussians for 4 data, but data.index reaches 4"):
        ig.Skip([latent, dense]).check_index(np.array([0, 4]))


def test_a_skip_forwards_to_its_layers():
    latent, gp = ig.LatentVariable(1, encoder()), sparse_gp(D=2)
    skip = ig.Skip([latent, gp])
    assert skip.couples_replicates and skip.num_inputs is None and ig.Skip(gp).num_inputs == 2
    assert ids(skip.variational()) == ids((latent.encoder, gp.variational()))
    assert ids(skip.gaussians()) == ids(gp.gaussians()) and ids(skip.per_datum()) == ids(latent.encoder)
    assert skip.encoders() == (latent.encoder,) and skip.relative_jitter() == gp.relative_jitter()


def test_one_sample_of_the_weights_serves_all_data():
    data, weight = ig.Data(np.ones((4, 1)), np.ones(4)), jnp.ones((4, 1))
    stack = ig.Skip([ig.LatentVariable(1, encoder()), ig.BayesianDense(2, 2), ig.Deterministic(jnp.tanh)])
    y, log_ratio = stack.sample_global(data.x[:, None], KEY, data, weight)
    assert y.shape == (4, 1, 3) and log_ratio.shape == ()
    assert ig.Skip([ig.BayesianDense(1, 1), Doubling()]).sample_global(data.x[:, None], KEY, data, weight) is None


def test_latent_variables_are_shifted():
    latent, data = ig.LatentVariable(1, encoder()), ig.Data(np.ones((4, 1)), np.ones(4))
    x = data.x[:, None]
    h = latent.sample_latents(x, KEY, data, 5)
    moved, _ = latent.shifted(x, KEY, data, 5, jnp.full_like(h, 2.0))
    np.testing.assert_allclose(moved[..., 1:], h + 2.0)
    same, weight = latent.shifted(x, KEY, data, 5, jnp.zeros_like(h))
    sampled, expected = latent.propagate(x, KEY, data, 5)
    np.testing.assert_allclose(same, sampled)
    np.testing.assert_allclose(weight, expected)
    with pytest.raises(TypeError, match="BayesianDense has no latent variables"):
        ig.BayesianDense(1, 1).shifted(x, KEY, data, 5, h)


def test_starting_values_ask_for_samples_only_where_they_are_needed():
    """Each sparse GP sees a sample of the layers below it; what is above the last one is not computed."""
    x = jnp.asarray(RNG.normal(size=(700, 2)))

    def fails(v):
        raise AssertionError("this layer should not be computed")

    above, inner, first = sparse_gp(D=4), sparse_gp(D=2, P=2), sparse_gp(D=2)
    layers = [ig.Skip(inner), ig.Deterministic(jnp.sin), above, ig.Deterministic(fails)]
    starts, _ = start_stack(layers, lambda: x, ig.Data(x), itertools.count())
    lengthscales = [gp.prior.kernels[0].lengthscale for gp in (above, inner)]
    assert [id(start.leaf) for start in starts][:2] == [id(leaf) for leaf in lengthscales]
    (start,), _ = start_stack([first], lambda: x, ig.Data(x), itertools.count())
    np.testing.assert_allclose(start.value, (2**0.5 - 0.5) * np.std(x, axis=0))
    assert start_stack([ig.Deterministic(fails)], fails, ig.Data(x), itertools.count())[0] == []


def test_a_layer_that_answers_nothing_is_trained_by_gradient_steps():
    layer, x = Doubling(), np.linspace(0.0, 1.0, 20)
    assert layer.correlated and layer.couples_replicates and layer.is_fresh and layer.num_inputs is None
    assert layer.gaussians() == layer.encoders() == () and layer.relative_jitter() == 0.0
    result = ig.fit(
        ig.Model(layer, ig.likelihoods.Gaussian()), (x, 3.0 * x), steps=300, learning_rate=0.05, progress=False
    )
    assert result.method == "adam"
    np.testing.assert_allclose(result.model.predict([2.0]).mean, [[6.0]], rtol=0.1)
    assert result.model.predict([2.0]).sample(KEY, 3).shape == (3, 1, 1)
    two = ig.Model(Doubling(), ig.likelihoods.Gaussian()).predict([[1.0, 2.0]])
    with pytest.raises(ValueError, match="the outputs are correlated"):
        two.sample(KEY)
    assert start_stack([layer], lambda: jnp.ones((3, 1)), ig.Data(np.ones((3, 1))), itertools.count())[1]().shape == (
        3,
        1,
    )
