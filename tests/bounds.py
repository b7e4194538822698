"""Small models that the tests of the bound share, and estimates of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import inducing as ig

KEY = jax.random.key(0)
N = 4
X = np.linspace(-1.0, 1.0, N)[:, None]
Y = np.sin(2.0 * X) + 0.3 * np.random.default_rng(0).normal(size=(N, 1))
DATA, UNSUPERVISED = ig.Data(X, Y), ig.Data(None, Y)
NOISE = 0.2
SLOPES = (0.5, 0.9, 0.7, 1.1)  # y = 0.7 (0.5 x + 0.9 h₁) + 1.1 h₂ + ε


@eqx.filter_jit
def estimates(model, data, keys, **options):
    """One estimate of the bound for each key."""
    return jax.lax.map(lambda k: ig.elbo(model, data, key=k, **options), keys, batch_size=50)


elbo = eqx.filter_jit(ig.elbo)


def mean_and_error(model, data, num=2000, key=KEY, **options):
    values = np.asarray(estimates(model, data, jax.random.split(key, num), **options))
    return values.mean(), values.std() / np.sqrt(num)


def gp(width=1, D=1, mean=None, root=0.3, M=4, seed=0):
    rng = np.random.default_rng(seed)
    prior = ig.priors.Independent(ig.kernels.SquaredExponential(0.9 * np.ones(D), 0.8), num=width, mean=mean)
    roots = root * np.broadcast_to(np.eye(M), (width, M, M))
    Z = np.linspace(-1.5, 1.5, M)[:, None] * np.ones((1, D)) if D == 1 else rng.normal(size=(M, D))
    return ig.SparseGP(prior, ig.features.InducingPoints(Z), 0.5 * rng.normal(size=(width, M)), roots, jitter=1e-10)


def latent_gp(encoder=None, **kwargs):
    encoder = ig.layers.PerDatumEncoder(0.3 * np.ones((N, 1)), scale=0.6) if encoder is None else encoder
    return ig.Model([ig.LatentVariable(1, encoder), gp(D=2, **kwargs)], ig.likelihoods.Gaussian(NOISE))


def deep_latent_gp():
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(0.3 * np.ones((N, 1)), scale=0.6))
    layers = [latent, gp(2, D=2, mean=ig.means.Identity()), gp(D=2, seed=1)]
    return ig.Model(layers, ig.likelihoods.Gaussian(NOISE))


def linear_decoder(slope=1.3, bias=0.2, noise=0.4, encoder=None):
    """y = slope·h + bias + ε, h ~ N(0, 1): the evidence is N(y | bias, slope² + noise)."""
    encoder = ig.layers.PerDatumEncoder(np.full((N, 1), 0.1), scale=0.7) if encoder is None else encoder
    layers = [ig.LatentVariable(1, encoder), ig.layers.Deterministic(eqx.nn.Linear(1, 1, key=KEY))]
    layers[1] = eqx.tree_at(
        lambda d: (d.function.weight, d.function.bias), layers[1], (jnp.array([[slope]]), jnp.array([bias]))
    )
    return ig.Model(layers, ig.likelihoods.Gaussian(noise))


def linear(*weights):
    """x ↦ weights·x, as a point estimate."""
    module = eqx.nn.Linear(len(weights), 1, use_bias=False, key=KEY)
    return ig.layers.Deterministic(eqx.tree_at(lambda m: m.weight, module, jnp.array([weights])))


def two_latents():
    a, b, c, d = SLOPES
    encoders = [ig.layers.PerDatumEncoder(np.full((N, 1), m), scale=s) for m, s in ((0.2, 0.8), (-0.1, 0.6))]
    first, second = (ig.LatentVariable(1, e) for e in encoders)
    return ig.Model([first, linear(a, b), second, linear(c, d)], ig.likelihoods.Gaussian(NOISE))
