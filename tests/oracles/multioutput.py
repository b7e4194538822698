"""Multi-output, convolutional and derivative priors: builders of the oracles' cases."""

import jax
import jax.numpy as jnp

import inducing as ig
from inducing.linalg import batched

from .common import array, squared_exponential


def _svgp(prior, features, inputs, y):
    """Bound, KL and predictions of a sparse GP with the case's q(u); no jitter."""
    mean, root = array(inputs["q_mu"]).T, array(inputs["q_sqrt"])
    gp = ig.SparseGP(prior, features, mean, root, "w" if inputs["whiten"] else "v", jitter=0.0)
    model = ig.Model(gp, ig.likelihoods.Gaussian(inputs["noise_variance"]))
    return gp, {"elbo": ig.elbo(model, (array(inputs["X"]), y)), "kl": gp.kl()}


def multioutput(case):
    inputs = case["inputs"]
    if case["name"].endswith("exact_icm"):
        return _exact_icm(inputs)
    spec, W = inputs["kernel"], array(inputs["W"])
    kernels = [
        ig.kernels.SquaredExponential(array(ls), v)
        for ls, v in zip(spec["lengthscales"], spec["variances"], strict=True)
    ]
    mean = ig.means.Constant(array(inputs["mean_constant"]))
    if "shared_independent" in case["name"]:
        prior = ig.priors.Independent(kernels[0], num=len(kernels), mean=mean)
    elif "separate_independent" in case["name"]:
        prior = ig.priors.Independent(kernels, mean=mean)
    else:
        prior = ig.priors.LMC(W, kernels, mean=mean)
    Z = array(inputs["Z"])
    shared = all(z == inputs["Z"][0] for z in inputs["Z"])
    features = ig.features.InducingPoints(Z[0]) if shared else [ig.features.InducingPoints(z) for z in Z]
    gp, out = _svgp(prior, features, inputs, array(inputs["Y"]))
    Xs = array(inputs["Xs"])
    N, P = Xs.shape[0], prior.num_outputs
    out["pred_mean"], out["pred_var"] = gp.marginals(Xs)
    out["pred_cov_full"] = gp.joint(Xs[None])[1].reshape(N, P, N, P)
    out["pred_cov_outputs"] = gp.joint(Xs[:, None])[1]
    return out


def _exact_icm(inputs):
    kernel, Xs = squared_exponential(inputs["kernel"]), array(inputs["Xs"])
    prior = ig.priors.IntrinsicCoregionalisation(array(inputs["W"]), array(inputs["kappa"]), kernel)
    exact = prior.condition(array(inputs["X"]), array(inputs["Y"]), inputs["noise_variance"])
    N, P = Xs.shape[0], prior.num_outputs
    cov = exact.covariance(Xs).reshape(N, P, N, P)
    return {
        "log_marginal_likelihood": exact.log_marginal_likelihood,
        "pred_mean": exact.mean(Xs).T.reshape(-1),
        "pred_cov": jnp.transpose(cov, (1, 0, 3, 2)).reshape(N * P, N * P),
    }


def convolutional(case):
    inputs = case["inputs"]
    kernel = ig.kernels.SquaredExponential(inputs["lengthscale"], inputs["variance"])
    X, patches = array(inputs["X"]), ig.features.InducingPoints(array(inputs["Z"]))
    shape = {"image_shape": (5, 5), "patch_shape": (3, 3)}
    if case["name"].endswith("per_patch"):
        prior = ig.priors.ImageConvolution(kernel, **shape)
        Kff = prior.Kff(X)[0]  # [N, I, N, I]
        return {
            "Kff": jnp.stack([Kff[n, :, n] for n in range(len(X))]),
            "Kuf": prior.Kuf(patches, X)[0],
            "Kff_cross01": Kff[0, :, 1],
        }
    prior = ig.priors.ImageConvolution(kernel, weights=array(inputs["weights"]), **shape)
    if "y" in inputs:
        gp, out = _svgp(prior, patches, inputs, array(inputs["y"]))
        mean, variance = gp.marginals(X)
        return out | {"f_mean": mean[:, 0], "f_var": variance[:, 0]}
    return {
        "Kuu": batched("dense", prior.Kuu(patches, 0.0))[0],
        "Kuf": prior.Kuf(patches, X)[0, :, :, 0],
        "Kff": prior.Kff(X)[0, :, 0, :, 0],
        "Kff_diag": prior.Kff_diag(X)[0, :, 0],
    }


def derivative(case):
    inputs = case["inputs"]
    kind = {"se": ig.kernels.SquaredExponential, "matern52": ig.kernels.Matern52}[case["name"].split("/")[1]]
    kernel = kind(array(inputs["lengthscales"]), inputs["variance"])
    X = array(inputs["X"])
    D = X.shape[1]
    prior = ig.priors.Derivative(ig.GP(kernel), dim=D, values=True)
    if case["name"].startswith("derivative_kernel"):
        X2 = array(inputs["X2"])
        K = prior.Kff(X, X2)[0]  # [N, 1 + D, N2, 1 + D]
        return {
            "K": K[:, 0, :, 0],
            "dK_dx2": K[:, 0, :, 1:],
            "dK_dx": jnp.moveaxis(K[:, 1:, :, 0], 1, 2),
            "d2K": jnp.moveaxis(K[:, 1:, :, 1:], 1, 2),
        }
    if case["name"].startswith("derivative_gp"):
        y = jnp.concatenate([array(inputs["y"])[:, None], array(inputs["gy"])], axis=1)
        noise = jnp.concatenate([array([inputs["noise_f"]]), jnp.full(D, inputs["noise_g"])])
        exact, Xs = prior.condition(X, y, noise), array(inputs["Xs"])
        mean, cov = exact.mean(Xs), exact.covariance(Xs)
        return {"log_marginal_likelihood": exact.log_marginal_likelihood} | _values_first(mean, cov)
    return _derivative_inducing(inputs, kernel, prior)


def _values_first(mean, cov):
    """(value, gradient) point by point, as all values and then all gradients."""
    N, E = mean.shape
    index = jnp.arange(N * E).reshape(N, E)
    order = jnp.concatenate([index[:, 0], index[:, 1:].reshape(-1)])
    return {"pred_mean": mean.reshape(-1)[order], "pred_cov": cov[order][:, order]}


def _derivative_inducing(inputs, kernel, prior):
    """u = (f(Z), ∇f(Z)): the derivative prior's output-as-input view has them as inducing points of its kernel."""
    X, Z, y, Xs = (array(inputs[k]) for k in ("X", "Z", "y", "Xs"))
    M, D = Z.shape
    pairs = jnp.concatenate(
        [
            jnp.concatenate([Z, jnp.zeros((M, 1))], axis=1),
            jnp.concatenate([jnp.repeat(Z, D, axis=0), jnp.tile(jnp.arange(1.0, D + 1), M)[:, None]], axis=1),
        ]
    )
    features = ig.features.InducingPoints(pairs)
    matrix = ig.priors.MatrixValued(ig.priors.as_input(prior).kernel, num_outputs=D + 1)
    labels = jnp.concatenate([y[:, None], jnp.full((len(y), D), jnp.nan)], axis=1)
    likelihood = ig.likelihoods.Gaussian(inputs["noise_f"])
    model = ig.Model(ig.SparseGP(matrix, features, jitter=0.0), likelihood)
    optimal = ig.collapse(model, (X, labels))
    mean, cov = optimal.layers[0].joint(Xs[None])
    out = _values_first(mean[0], cov[0])
    for key, coordinates in (("elbo_unwhite", "u"), ("elbo_white", "w")):
        gp = ig.SparseGP(matrix, features, array(inputs["q_mu"]), array(inputs["q_sqrt"]), coordinates, jitter=0.0)
        out[key] = ig.elbo(ig.Model(gp, likelihood), (X, labels))
    out["collapsed_bound"] = ig.collapsed_elbo(model, (X, labels))
    out["Kuu"] = matrix.kernel.gram(pairs)
    out["Kuf"] = matrix.Kuf(features, X)[0, :, :, 0]
    return out


def convolution_process(case):
    inputs = case["inputs"]
    kernel = ig.kernels.SquaredExponential(array(inputs["lengthscales"]), inputs["variance"])
    G = ig.priors.GaussianSmoothing(array(inputs["smooth"])[:, None], array(inputs["amp"])[:, None])
    prior = ig.priors.ConvolutionProcess(G, kernel)
    X1, X2 = array(inputs["X1"]), array(inputs["X2"])
    features = ig.features.InducingPoints(array(inputs["Z"]))
    y = array(inputs["y"])
    X = jnp.concatenate([X1, X2])
    labels = jnp.full((len(X), 2), jnp.nan).at[: len(X1), 0].set(y[: len(X1)]).at[len(X1) :, 1].set(y[len(X1) :])
    noise = array(inputs["noise_variance"])
    model = ig.Model(ig.SparseGP(prior, features, jitter=0.0), ig.likelihoods.Gaussian(noise))
    return {
        "K11": prior.Kff(X1)[0, :, 0, :, 0],
        "K12": prior.Kff(X1, X2)[0, :, 0, :, 1],
        "K22": prior.Kff(X2)[0, :, 1, :, 1],
        "K1u": prior.Kuf(features, X1)[0, :, :, 0].T,
        "K2u": prior.Kuf(features, X2)[0, :, :, 1].T,
        "Kuu": batched("dense", prior.Kuu(features, 0.0))[0],
        "log_marginal_likelihood": prior.condition(X, labels, noise).log_marginal_likelihood,
        "titsias_bound": ig.collapsed_elbo(model, (X, labels)),
    }


def _compiled(builder):
    """One compilation for a case instead of one for each of its many small operations."""
    return lambda case: jax.jit(lambda: builder(case))()


BUILDERS = {
    "6_multioutput": _compiled(multioutput),
    "7_convolutional": _compiled(convolutional),
    "8_derivative": _compiled(derivative),
    "11_convolution_process": _compiled(convolution_process),
}
