"""Deep, latent-variable and importance-weighted models: builders of the oracles' cases.

The expected bounds are exact expectations, so what the library samples is integrated here by quadrature, through the
library's own pieces: the moments of each inner layer, the log-weights of latent variables, the expected log-likelihood.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import inducing as ig
from inducing.bounds import expected_log_likelihood

from .common import array, likelihood, sparse_gp, squared_exponential


def deep_gp(case):
    spec = case["inputs"]
    layers = [_layer(layer) for layer in spec["layers"]]
    model = ig.Model(layers, likelihood(spec["likelihood"]["name"], spec["likelihood"]))
    data = ig.Data(array(spec["X"]), array(spec["y"]))
    data_term, kl = eqx.filter_jit(nested_quadrature)(model, data, 48), model.kl()
    return {"elbo": data_term.sum() - kl, "data_term": data_term, "kl": kl}


def _layer(spec):
    means = {
        "zero": lambda: None,
        "identity": ig.means.Identity,
        "linear": lambda: ig.means.Linear(spec["A"], spec["b"]),
    }
    mean = means[spec["mean"]]()
    prior = ig.priors.Independent(squared_exponential(spec), num=len(spec["q_sqrt"]), mean=mean)
    return sparse_gp(prior, spec["Z"], spec["q_mu"], spec["q_sqrt"], whiten=True)


def nested_quadrature(model, data, num):
    """E log p(y_n | f_n) with `num` nodes for each output of each inner layer, the nodes being replicates."""
    z, w = (jnp.asarray(a) for a in np.polynomial.hermite_e.hermegauss(num))
    w = w / np.sqrt(2 * np.pi)
    x, weight = data.x[:, None], jnp.ones(1)
    for layer in model.layers[:-1]:
        mean, variance = layer.moments(x)
        N, _, P = mean.shape
        nodes = jnp.stack(jnp.meshgrid(*[z] * P, indexing="ij"), -1).reshape(-1, P)
        product = jnp.prod(jnp.stack(jnp.meshgrid(*[w] * P, indexing="ij"), -1).reshape(-1, P), axis=1)
        x = mean[:, :, None] + jnp.sqrt(variance)[:, :, None] * nodes[None, None]
        x = x.reshape(N, -1, P)
        weight = (weight[:, None] * product[None]).reshape(-1)
    return expected_log_likelihood(model, data, x) @ weight


NODES, REACH = 1601, 12.0


def importance_weights(model, data):
    """Points h of each q(h_n), their quadrature weights, log explik(h), log explik(h) p(h)/q(h), and KL_n; d = 1."""
    layer = model.layers[0]
    mean, scale, kl = layer.posterior(data)
    xi = jnp.linspace(-REACH, REACH, NODES)
    h = mean + scale * xi[None]
    x, key = data.x[:, None] if data.x is not None else jnp.zeros((len(data), 1, 0)), jax.random.key(0)
    start = layer.sample(x, key, data, NODES).h
    s = layer.sample(x, key, data, NODES, shift=h[..., None] - start)
    inputs = jnp.concatenate([jnp.broadcast_to(x, (*h.shape, x.shape[2])), s.h], axis=-1)
    log_q = jnp.log(xi[1] - xi[0]) - 0.5 * xi**2 - 0.5 * jnp.log(2 * jnp.pi)
    explik = expected_log_likelihood(model, data, inputs)
    return h, jnp.exp(log_q), explik, explik + s.log_ratio, kl


def importance_weighted(q, log_w, S):
    """E log 1/S Σ_s w_s by E log X = ∫ (e^−t − E e^−tX) dt/t, for one datum."""
    q, log_w = np.asarray(q), np.asarray(log_w)
    tau = np.linspace(-45.0, 60.0, 1201)
    shift = np.max(log_w + np.log(q))  # in units of a typical weight
    tw = np.exp(np.minimum(tau[:, None] + log_w[None] - shift - np.log(S), 700.0))
    with np.errstate(divide="ignore"):  # log 0 where all of e^−tX has vanished
        log_phi = S * np.log1p(-np.minimum(-np.expm1(-tw) @ q, 1.0))
    integrand = np.expm1(-np.exp(tau)) - np.expm1(log_phi)
    return shift + np.trapezoid(integrand, tau)


def linear_gaussian(spec):
    w, b = spec["w"], spec["b"]
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(array([[spec["m"]]]), scale=spec["v"] ** 0.5))
    model = ig.Model([latent, ig.layers.Deterministic(lambda h: w * h + b)], ig.likelihoods.Gaussian(spec["s2"]))
    h, q, explik, log_w, kl = (np.asarray(a) for a in importance_weights(model, ig.Data(None, array([spec["y"]]))))
    joint = q * np.exp(log_w[0])
    mean = joint @ h[0] / joint.sum()
    return {
        "log_marginal": np.log(joint.sum()),
        "elbo": q @ explik[0] - kl[0],
        "L": [importance_weighted(q, log_w[0], S) for S in spec["S"]],
        "posterior_mean": mean,
        "posterior_var": joint @ (h[0] - mean) ** 2 / joint.sum(),
    }


def latent_variable_svgp(spec):
    encoder = ig.layers.PerDatumEncoder(array(spec["w_mean"])[:, None], scale=array(spec["w_var"])[:, None] ** 0.5)
    gp = sparse_gp(ig.GP(squared_exponential(spec)), spec["Z"], spec["q_mu"], spec["q_sqrt"], whiten=True)
    model = ig.Model([ig.LatentVariable(1, encoder), gp], ig.likelihoods.Gaussian(spec["noise_variance"]))
    data = ig.Data(array(spec["X"]), array(spec["y"]))
    _, q, _, log_w, _ = eqx.filter_jit(importance_weights)(model, data)
    per_datum = np.array([[importance_weighted(q, row, S) for S in spec["S"]] for row in np.asarray(log_w)])
    kl = float(model.kl())
    return {"per_datum": per_datum, "bound": per_datum.sum(axis=0) - kl, "kl": kl}


def bayesian_gplvm(spec):
    Y, kernel = array(spec["Y"]), squared_exponential(spec)
    X_mean, X_var = array(spec["X_mean"]), array(spec["X_var"])
    latent = ig.LatentVariable(X_mean.shape[1], ig.layers.PerDatumEncoder(X_mean, scale=X_var**0.5))
    prior = ig.priors.Independent(kernel, num=Y.shape[1])
    gp = ig.SparseGP(prior, ig.features.InducingPoints(array(spec["Z"])), jitter=0.0)
    model, data = ig.Model([latent, gp], ig.likelihoods.Gaussian(spec["noise_variance"])), ig.Data(None, Y)
    mean, scale, kl = latent.posterior(data)
    psi = eqx.filter_jit(kernel.gaussian_expectations)(array(spec["Z"]), mean, scale**2)
    pred_mean, pred_var = jax.jit(lambda m: ig.gplvm_collapse(m, data).layers[1].marginals(array(spec["Xs"])))(model)
    return {
        "bound": jax.jit(ig.gplvm_elbo)(model, data),
        "kl_X": kl.sum(),
        "psi0": psi.psi0,
        "psi1": psi.psi1,
        "psi2": psi.psi2,
        "pred_mean": pred_mean,
        "pred_var": pred_var[:, 0],
    }


def importance_and_gplvm(case):
    name = case["name"]
    kinds = {"iw/linear": linear_gaussian, "iw/latent": latent_variable_svgp, "bayesian_gplvm": bayesian_gplvm}
    return next(build for start, build in kinds.items() if name.startswith(start))(case["inputs"])


BUILDERS = {"12_deep_gp": deep_gp, "13_iw_gplvm": importance_and_gplvm}
