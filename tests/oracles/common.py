"""What several families of oracles need: kernels, likelihoods and sparse GPs from the inputs of a case."""

import jax.numpy as jnp

import inducing as ig


class NotBuilt(Exception):
    """The library cannot express this case yet."""


def get(module, name: str):
    """A public name of the library, or NotBuilt."""
    try:
        return getattr(module, name)
    except AttributeError:
        raise NotBuilt(f"{module.__name__}.{name}") from None


def array(value):
    return jnp.asarray(value, float)


def squared_exponential(spec: dict):
    return ig.kernels.SquaredExponential(array(spec["lengthscales"]), spec["variance"])


def likelihood(name: str, spec: dict):
    """The likelihood that the oracles call `name`, with their parameters."""
    lik = ig.likelihoods
    if name == "gaussian":
        return lik.Gaussian(spec["variance"])
    if name in ("bernoulli_probit", "bernoulli_logit"):
        return lik.Bernoulli(name.removeprefix("bernoulli_"))
    if name == "poisson_exp":
        return get(lik, "Poisson")("exp", spec.get("binsize", 1.0))
    if name == "student_t":
        return get(lik, "StudentT")(spec["df"], spec["scale"])
    if name == "gamma_exp":
        return get(lik, "Gamma")(spec["shape"])
    if name == "exponential_exp":
        return get(lik, "Exponential")()
    if name in ("beta_probit", "beta_logit"):
        return get(lik, "Beta")(spec["scale"], name.removeprefix("beta_"))
    if name == "ordinal":
        return get(lik, "Ordinal")(array(spec["bin_edges"]), spec["sigma"])
    if name.startswith("softmax"):
        return get(lik, "Softmax")(int(name.removeprefix("softmax")))
    if name.startswith("robustmax"):
        return get(lik, "RobustMax")(int(name.removeprefix("robustmax")), spec["epsilon"])
    if name == "hetero_gaussian":
        return get(lik, "HeteroscedasticGaussian")()
    raise NotBuilt(f"likelihood {name}")


def independent(kernel, num_latents: int, mean=None):
    """`num_latents` independent GPs that share one kernel; one is the scalar GP."""
    if num_latents == 1:
        return ig.GP(kernel, mean)
    return get(ig.priors, "Independent")(kernel, num_latents, mean=mean)


def sparse_gp(prior, Z, q_mu, q_sqrt, whiten: bool):
    """q(u) as the oracles give it: q_mu [M] or [M, L], q_sqrt [M, M] or [L, M, M], of v or w; no jitter."""
    mean, root = array(q_mu).T, array(q_sqrt)
    features = ig.features.InducingPoints(array(Z))
    return ig.SparseGP(prior, features, mean, root, coordinates="w" if whiten else "v", jitter=0.0)
