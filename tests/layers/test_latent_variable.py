"""Latent variables and their encoders against the densities of SciPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import inducing as ig

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
DATA = ig.Data(RNG.normal(size=(3, 2)), RNG.normal(size=3))
MEAN, SCALE = RNG.normal(size=(3, 2)), RNG.uniform(0.5, 1.5, size=(3, 2))


def per_datum(full):
    encoder = ig.layers.PerDatumEncoder(MEAN, SCALE, full=full)
    return eqx.tree_at(lambda e: e.lower, encoder, jnp.array([[0.3], [-0.4], [0.8]])) if full else encoder


def covariance(full):
    roots = np.stack([np.diag(s) for s in SCALE])
    if full:
        roots[:, 1, 0] = [0.3, -0.4, 0.8]
    return roots @ np.swapaxes(roots, 1, 2)


@pytest.mark.parametrize("full", [False, True])
def test_log_weights_are_density_ratios(full):
    """log p(h)/q(h) of every sample, and the analytic KL, for a prior that is not standard normal."""
    layer = ig.LatentVariable(2, per_datum(full), mean=[0.2, -0.1], scale=[0.7, 1.3])
    x, R = DATA.x[:, None], 4
    out, log_weight = layer.propagate(x, KEY, DATA, R)
    S = covariance(full)
    p = multivariate_normal([0.2, -0.1], np.diag([0.49, 1.69]))
    for n in range(3):
        h = np.asarray(out[n, :, 2:])
        expected = p.logpdf(h) - multivariate_normal(MEAN[n], S[n]).logpdf(h)
        np.testing.assert_allclose(log_weight[n], expected, rtol=1e-10)
        np.testing.assert_array_equal(out[n, :, :2], np.tile(DATA.x[n], (R, 1)))
    _, minus_kl = layer.propagate(x, KEY, DATA, 1)
    P = np.diag([0.49, 1.69])
    d = MEAN - np.array([0.2, -0.1])
    kl = [
        0.5 * (np.trace(np.linalg.solve(P, S[n])) + d[n] @ np.linalg.solve(P, d[n]) - 2)
        + 0.5 * np.log(np.linalg.det(P) / np.linalg.det(S[n]))
        for n in range(3)
    ]
    np.testing.assert_allclose(-minus_kl[:, 0], kl, rtol=1e-10)
    np.testing.assert_allclose(layer.posterior((DATA.x, DATA.y))[2], kl, rtol=1e-10)


def test_samples_have_the_moments_of_q():
    layer = ig.LatentVariable(2, per_datum(True))
    h = np.asarray(layer.sample(DATA.x[:, None], KEY, DATA, 40_000).h)
    for n in range(3):
        S = covariance(True)[n]
        np.testing.assert_allclose(h[n].mean(axis=0), MEAN[n], atol=4 * np.sqrt(np.diag(S).max() / 40_000))
        np.testing.assert_allclose(np.cov(h[n].T), S, atol=5 * np.diag(S).max() * np.sqrt(2 / 40_000))


def test_rows_are_addressed_by_index():
    layer = ig.LatentVariable(2, per_datum(False))
    rows = DATA.rows(jnp.array([2, 0]))
    np.testing.assert_array_equal(layer.posterior(rows)[0], MEAN[[2, 0]])
    with pytest.raises(ValueError, match=r"Data.index goes from 7 up to 7 but the encoder has Gaussians for 3 data"):
        layer.posterior(ig.Data(None, [1.0], index=[7]))


def test_predictions_use_the_prior_unless_the_encoder_sees_only_x():
    """Without y: h ~ p(h) for encoders of y and of the index, h ~ q(h | x) for encoders of x; no log-weights."""

    def network(v):
        return jnp.array([3.0 + v[0], -4.0])

    new = ig.Data(jnp.zeros((20_000, 1)))
    for encoder, mean, scale in [
        (ig.layers.PerDatumEncoder(10.0 * jnp.ones((5, 1))), 0.5, 2.0),
        (ig.layers.Amortised(network), 0.5, 2.0),
        (ig.layers.Amortised(network, sees=("x",)), 3.0, np.log1p(np.exp(-4.0))),
        (ig.layers.Amortised(network, sees=("input",)), 3.0, np.log1p(np.exp(-4.0))),
        (None, 0.5, 2.0),
    ]:
        layer = ig.LatentVariable(1, encoder, mean=[0.5], scale=[2.0])
        out, log_weight = layer.propagate(new.x[:, None], KEY, new, 1)
        h = np.asarray(out[:, 0, 1])
        assert abs(h.mean() - mean) < 4 * scale / np.sqrt(20_000)
        assert abs(h.std() - scale) < 4 * scale / np.sqrt(40_000)
        assert not log_weight.any()


def test_joint_propagation_gives_each_row_its_own_latent_variable():
    """x as [1, N, D] draws functions jointly over the data; encoders of x follow."""
    encoder = ig.layers.Amortised(lambda v: jnp.concatenate([10.0 * v, -20.0 + 0.0 * v]), sees=("x",))
    new = ig.Data(jnp.arange(4.0)[:, None])
    out, _ = ig.LatentVariable(1, encoder).propagate(new.x[None], KEY, new, 4)
    np.testing.assert_allclose(out[0, :, 1], 10.0 * np.arange(4.0), atol=1e-7)


def test_joint_propagation_of_an_encoder_of_x_and_of_its_input():
    """In an inner layer x and the input differ; a joint prediction gives each row both, as the marginal one does."""
    encoder = ig.layers.Amortised(lambda v: jnp.array([10.0 * v[0] + v[1], -20.0]), sees=("x", "input"))
    new, layer = ig.Data(jnp.arange(4.0)[:, None]), ig.LatentVariable(1, encoder)
    inputs = jnp.array([[0.1], [0.2], [0.4], [0.8]])
    expected = 10.0 * np.arange(4.0) + np.asarray(inputs)[:, 0]
    np.testing.assert_allclose(layer.propagate(inputs[None], KEY, new, 4)[0][0, :, 1], expected, atol=1e-7)
    np.testing.assert_allclose(layer.propagate(inputs[:, None], KEY, new, 1)[0][:, 0, 1], expected, atol=1e-7)
    double, read = ig.layers.Deterministic(lambda x: 2.0 * x), ig.layers.Deterministic(lambda v: v[1:])
    model = ig.Model([double, layer, read], ig.likelihoods.Gaussian(0.1))
    for full_cov in (True, False):
        f = model.posterior(new.x, full_cov=full_cov, samples=2).means
        np.testing.assert_allclose(f[..., 0], [12.0 * np.arange(4.0)] * 2, atol=1e-6)


def test_amortised_encoders_see_filled_labels_and_their_mask():
    seen = []
    encoder = ig.layers.Amortised(lambda v: (seen.append(v.shape), jnp.concatenate([v[1:2], v[2:3]]))[1])
    data = ig.Data([1.0, 2.0], [5.0, jnp.nan])
    mean, root = encoder(data.x[:, None], data, 1)
    assert seen == [(3,)]
    np.testing.assert_array_equal(mean[:, 0, 0], [5.0, 0.0])
    np.testing.assert_allclose(root[:, 0, 0], np.log1p(np.exp([1.0, 0.0])))


def test_full_amortised_covariance():
    """Five numbers for two dimensions: mean, standard deviations, and the strictly lower triangle."""
    encoder = ig.layers.Amortised(lambda v: jnp.array([1.0, 2.0, 0.0, 1.0, 0.5]), sees=("y",))
    mean, root = encoder(jnp.zeros((1, 1, 0)), ig.Data(None, [0.0]), 2)
    sp = np.log1p(np.exp([0.0, 1.0]))
    np.testing.assert_allclose(root[0, 0], [[sp[0], 0.0], [0.5, sp[1]]])
    np.testing.assert_array_equal(mean[0, 0], [1.0, 2.0])
    assert ig.layers.Amortised.mlp(KEY, dim=2, y=1, full=True)(jnp.zeros((1, 1, 0)), ig.Data(None, [0.0]), 2)[
        1
    ].shape == (1, 1, 2, 2)


def test_a_draw_is_one_function():
    f = ig.LatentVariable(2).draw(KEY, 10, 1)
    X = jnp.array([[0.0], [1.0]])
    np.testing.assert_array_equal(f(X)[0, 1:], f(X)[1, 1:])
    np.testing.assert_array_equal(f(X)[1:], f(X[1:]))


def test_a_draw_of_an_encoder_follows_the_inputs_that_it_sees():
    def network(v):
        return jnp.array([10.0 * v[0], 0.0])

    layer = ig.LatentVariable(1, ig.layers.Amortised(network, sees=("input",)), mean=[5.0])
    h = np.asarray(layer.draw(KEY, 10, 1)(jnp.array([[0.0], [1.0], [3.0]])))[:, 1]
    np.testing.assert_allclose(np.diff(h), [10.0, 20.0], rtol=1e-12)  # the same noise for every input
    labelled = ig.LatentVariable(
        1, ig.layers.Amortised(network), mean=[5.0], scale=[1e-9]
    )  # so it is p(h) that is drawn
    np.testing.assert_allclose(labelled.draw(KEY, 10, 1)(jnp.array([[7.0]])), [[7.0, 5.0]], rtol=1e-6)
    # in an inner layer, here also of a Skip, "x" is the input of the model and not that of the layer
    of_x = ig.LatentVariable(1, ig.layers.Amortised(lambda v: jnp.array([10.0 * v[0], -40.0]), sees=("x",)))
    double, read = ig.Deterministic(lambda x: jnp.tile(2.0 * x, 3)), ig.Deterministic(lambda v: v[-1:])
    x = jnp.array([[0.5], [1.0], [3.0]])
    for layers in ([of_x, read], [double, of_x, read], [double, ig.Skip(of_x), read]):
        f = ig.Model(layers, ig.likelihoods.Gaussian(0.1)).draw(KEY)
        np.testing.assert_allclose(f(x), 10.0 * x, rtol=1e-12)


def test_networks_that_do_not_fit_are_refused_with_their_widths():
    """In the words of the library, also from within `fit`, before anything is compiled."""
    read = ig.layers.Deterministic(lambda v: v[:1])

    def model(network, sees, dim=1):
        return ig.Model(
            [ig.LatentVariable(dim, ig.layers.Amortised(network, sees)), read], ig.likelihoods.Gaussian(0.1)
        )

    narrow = model(eqx.nn.MLP(5, 2, 3, 1, key=KEY), ("x", "y", "mask"))
    with pytest.raises(ValueError, match=r"for the 4 numbers that it sees \(2 of x, 1 of y, 1 of mask\)"):
        ig.elbo(narrow, DATA, key=KEY)
    with pytest.raises(ValueError, match="for the 4 numbers that it sees"):
        ig.fit(narrow, DATA, steps=1, progress=False)
    with pytest.raises(ValueError, match=r"for the 2 numbers that it sees \(2 of x\)"):
        model(eqx.nn.MLP(5, 2, 3, 1, key=KEY), ("x",)).predict(DATA.x)
    with pytest.raises(ValueError, match=r"gives 2 numbers; a latent variable of 2 dimensions needs 4 numbers .* or 5"):
        ig.elbo(model(eqx.nn.MLP(4, 2, 3, 1, key=KEY), ("x", "y", "mask"), dim=2), DATA, key=KEY)
    with pytest.raises(ValueError, match=r"gives an array of shape \[\]"):
        ig.elbo(model(jnp.sum, ("x", "y", "mask")), DATA, key=KEY)


def test_bad_input_is_refused(unchecked):
    with pytest.raises(ValueError, match="the encoder's Gaussians have 2 dimensions but the latent variable has 3"):
        ig.LatentVariable(3, per_datum(False))
    with pytest.raises(ValueError, match="dim must be an integer of at least 1, got 0"):
        ig.LatentVariable(0)
    with pytest.raises(ValueError, match="the encoder's network gives 3 numbers"):
        ig.layers.Amortised(lambda v: v, sees=("x", "y"))(DATA.x[:, None], DATA, 2)
    with pytest.raises(ValueError, match='the encoder sees "y", which a prediction does not have'):
        ig.layers.Amortised(lambda v: v)(DATA.x[:, None], ig.Data(DATA.x), 1)
    with pytest.raises(ValueError, match='sees "x" but the data have no inputs'):
        ig.layers.Amortised(lambda v: v)(jnp.zeros((1, 1, 0)), ig.Data(None, [0.0]), 1)
    with pytest.raises(ValueError, match="sees must name some of"):
        ig.layers.Amortised(lambda v: v, sees=("z",))
    with pytest.raises(TypeError, match="encoder must be"):
        ig.LatentVariable(1, lambda v: v)
    with pytest.raises(ValueError, match=r"mean must be \[N, d\]"):
        ig.layers.PerDatumEncoder(jnp.zeros(3))
    with pytest.raises(ValueError, match="scale has shape"):
        ig.LatentVariable(2, scale=[1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"PerDatumEncoder\.scale must be positive"):
        ig.layers.PerDatumEncoder(jnp.zeros((2, 1)), scale=-1.0)
    with pytest.raises(ValueError, match=r"scale has shape \[5\]; for a mean \[5, 2\] .*one for each datum: \[5, 1\]"):
        ig.layers.PerDatumEncoder(jnp.zeros((5, 2)), scale=np.ones(5))
    scale = ig.layers.PerDatumEncoder(jnp.zeros((2, 3)), scale=[[1], [2]]).scale
    np.testing.assert_array_equal(scale[:, 2], [1.0, 2.0])
    with pytest.raises(ValueError, match="dim must be an integer of at least 1, got 0"):
        ig.layers.Amortised.mlp(KEY, 0, y=1)
    with pytest.raises(ValueError, match="y must be an integer of at least 1, got -1"):
        ig.layers.Amortised.mlp(KEY, 1, x=2, y=-1)
    with pytest.raises(ValueError, match=r"hidden must be \(width, depth\), got 20"):
        ig.layers.Amortised.mlp(KEY, 1, y=1, hidden=20)
