"""Exact and sparse GPs, likelihoods, KL, natural gradients: builders of the oracles' cases."""

import equinox as eqx
import jax
import jax.numpy as jnp

import inducing as ig

from .common import NotBuilt, array, get, independent, likelihood, sparse_gp, squared_exponential


def _exact_kernel(name: str, spec: dict):
    kernels = ig.kernels
    stationary = {
        "se_ard": kernels.SquaredExponential,
        "matern12": kernels.Matern12,
        "matern32": kernels.Matern32,
        "matern52": kernels.Matern52,
    }
    if name in stationary:
        return stationary[name](array(spec["lengthscales"]), spec["variance"])
    if name == "rq":
        return kernels.RationalQuadratic(array(spec["lengthscales"]), spec["variance"], spec["alpha"])
    if name == "periodic":
        return kernels.Periodic(squared_exponential(spec), spec["period"])
    if name == "linear":
        return kernels.Linear(array(spec["variances"]))
    if name == "linear_plus_se":
        return kernels.Linear(array(spec["variances"])) + squared_exponential(spec)
    if name == "product_se_matern32_active_dims":
        first = kernels.SquaredExponential(spec["lengthscale1"], spec["variance1"])
        second = kernels.Matern32(spec["lengthscale2"], spec["variance2"])
        return kernels.ActiveDims(first, 0) * kernels.ActiveDims(second, 1)
    if name == "product_se_periodic":
        periodic = kernels.Periodic(kernels.SquaredExponential(spec["lengthscale_per"], 1.0), spec["period"])
        return squared_exponential(spec) * periodic
    if name == "cosine":
        return kernels.Cosine(array(spec["lengthscales"]), spec["variance"])
    if name.startswith("arccos"):
        return kernels.ArcCosine(
            spec["order"], spec["variance"], array(spec["weight_variances"]), spec["bias_variance"]
        )
    if name == "polynomial":
        return kernels.Polynomial(spec["degree"], array(spec["variances"]), spec["offset"])
    raise NotBuilt(f"kernel {name}")


def exact_gp(case: dict) -> dict:
    inputs = case["inputs"]
    X, Xs = array(inputs["X"]), array(inputs["Xs"])
    kernel = _exact_kernel(case["name"].split("/")[1], inputs["kernel"])
    prior = ig.GP(kernel, ig.means.Constant(inputs["mean_constant"]))
    return _exact_values(prior, X, array(inputs["y"]), array(inputs["noise_variance"]), Xs)


@eqx.filter_jit
def _exact_values(prior, X, y, noise_variance, Xs) -> dict:
    exact = prior.condition(X, y, noise_variance)
    return {
        "log_marginal_likelihood": exact.log_marginal_likelihood,
        "pred_mean": exact.mean(Xs)[:, 0],
        "pred_var": exact.variance(Xs)[:, 0],
        "pred_cov": exact.covariance(Xs),
        "K": prior.kernel.gram(X),
    }


def sgpr(case: dict) -> dict:
    inputs = case["inputs"]
    family = case["name"].split("/")[1].split("_")[0]
    kinds = {"se": ig.kernels.SquaredExponential, "matern52": ig.kernels.Matern52, "matern32": ig.kernels.Matern32}
    spec = inputs["kernel"]
    kernel = get_kind(kinds, family)(array(spec["lengthscales"]), spec["variance"])
    prior = ig.GP(kernel, ig.means.Constant(inputs["mean_constant"]))
    gp = ig.SparseGP(prior, ig.features.InducingPoints(array(inputs["Z"])), coordinates="v", jitter=0.0)
    model = ig.Model(gp, ig.likelihoods.Gaussian(inputs["noise_variance"]))
    data = (array(inputs["X"]), array(inputs["y"]))
    optimal = ig.collapse(model, data)
    posterior = optimal.posterior(array(inputs["Xs"]), full_cov=True)
    root = optimal.layers[0].root[0]
    return {
        "bound": ig.collapsed_elbo(model, data),
        "pred_mean": posterior.mean[:, 0],
        "pred_var": posterior.variance[:, 0],
        "pred_cov": posterior.covariance,
        "qu_mean": optimal.layers[0].mean[0],
        "qu_cov": root @ root.T,
    }


def get_kind(kinds: dict, name: str):
    if name not in kinds:
        raise NotBuilt(name)
    return kinds[name]


def svgp(case: dict) -> dict:
    inputs = case["inputs"]
    q_mu = array(inputs["q_mu"])
    latents = 1 if q_mu.ndim == 1 else q_mu.shape[1]
    prior = independent(squared_exponential(inputs["kernel"]), latents, ig.means.Constant(inputs["mean_constant"]))
    gp = sparse_gp(prior, inputs["Z"], q_mu, inputs["q_sqrt"], inputs["whiten"])
    model = ig.Model(gp, likelihood(case["name"].split("/")[1], inputs["likelihood"]))
    X, y = array(inputs["X"]), array(inputs["y"])
    got = _svgp_values(model, X, y)
    if latents == 1:
        got |= {key: got[key][:, 0] for key in ("f_mean", "f_var")}
    return got


@eqx.filter_jit
def _svgp_values(model, X, y) -> dict:
    gp = model.layers[0]
    mean, variance = gp.marginals(X)
    _, cov = gp.moments(X[:, None], correlated=model.likelihood.joint)
    return {
        "elbo": ig.elbo(model, (X, y)),
        "kl": gp.kl(),
        "var_exp": model.likelihood.expected_log_prob(mean, cov[:, 0], y[:, None])[:, 0],
        "f_mean": mean,
        "f_var": variance,
    }


def kl(case: dict) -> dict:
    inputs = case["inputs"]
    q_mu = array(inputs["q_mu"])  # [M, L]
    root = array(inputs["q_sqrt"]) if "q_sqrt" in inputs else array(inputs["q_sqrt_diag"]).T
    coordinates = "w" if case["name"].endswith("white") and not case["name"].endswith("unwhite") else "v"
    Z = array(inputs["Z"]) if "Z" in inputs else jnp.arange(float(len(q_mu)))[:, None]  # w does not ask where they are
    spec = inputs.get("kernel", {"variance": 1.0, "lengthscales": 1.0})
    if "variances" in spec:
        kernels = [
            ig.kernels.Matern32(array(s), v) for v, s in zip(spec["variances"], spec["lengthscales"], strict=True)
        ]
        prior = get(ig.priors, "Independent")(kernels)
    else:
        prior = independent(squared_exponential(spec), q_mu.shape[1])
    gp = ig.SparseGP(prior, ig.features.InducingPoints(Z), q_mu.T, root, coordinates, jitter=0.0)
    return {"kl": gp.kl()}


def natgrad(case: dict) -> dict:
    step = get(ig, "natural_gradient_step")
    inputs = case["inputs"]
    prior = ig.GP(squared_exponential(inputs["kernel"]), ig.means.Constant(inputs["mean_constant"]))
    gp = sparse_gp(prior, inputs["Z"], inputs["q_mu"], inputs["q_sqrt"], inputs["whiten"])
    spec = inputs["likelihood"]
    model = ig.Model(gp, likelihood(spec["name"], spec))
    data = (array(inputs["X"]), array(inputs["y"]))
    got = _natgrad_values(step, model, data, float(inputs["gamma"]))
    if "collapsed_bound" in case["expected"]:
        got["collapsed_bound"] = eqx.filter_jit(ig.collapsed_elbo)(model, data)
    return got


@eqx.filter_jit
def _natgrad_values(step, model, data, gamma) -> dict:
    after = step(model, data, gamma=gamma)
    root = after.layers[0].root[0]
    return {
        "new_q_mu": after.layers[0].mean[0],
        "new_q_cov": root @ root.T,
        "elbo_before": ig.elbo(model, data),
        "elbo_after": ig.elbo(after, data),
    }


def expectations(case: dict) -> dict:
    inputs = case["inputs"]
    name = case["name"].split("/")[1]
    spec = inputs.get("likelihood") or {k: v for k, v in inputs.items() if k not in ("m", "v", "y")}
    lik = likelihood(name, spec)
    m, v, y = (array(inputs[k]) for k in ("m", "v", "y"))
    m, v = (a[:, None] if a.ndim == 1 else a for a in (m, v))
    y = y[:, None]

    got = _expectations(lik, m, v, y)
    if "prob_largest" in case["expected"]:
        got["prob_largest"] = lik.prob_largest(m, v, y)[:, 0]
    return got


@eqx.filter_jit
def _expectations(lik, m, v, y) -> dict:
    def total(m, v):
        each = lik.expected_log_prob(m, v, y)
        return jnp.sum(each), each

    (d_dm, d_dv), each = jax.grad(total, argnums=(0, 1), has_aux=True)(m, v)
    return {
        "var_exp": each[:, 0],
        "log_pred": lik.predictive_log_prob(m, v, y)[:, 0],
        "d_dm": d_dm[:, 0],
        "d_dv": d_dv[:, 0],
    }


BUILDERS = {
    "1_exact_gp": exact_gp,
    "2_sgpr": sgpr,
    "3_svgp": svgp,
    "4_kl": kl,
    "5_natgrad": natgrad,
    "14_gauss_hermite": expectations,
}
