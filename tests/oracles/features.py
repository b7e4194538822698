"""Interdomain features: Fourier, derivative, Hilbert-space and Mercer features: builders of the oracles' cases.

A group's builder takes the case and returns what was got, key by key.
"""

import jax
import jax.numpy as jnp

import inducing as ig

from .common import NotBuilt, array, get

MATERN = {"matern12": "Matern12", "matern32": "Matern32", "matern52": "Matern52", "se": "SquaredExponential"}


def kernel_of(name: str, inputs: dict):
    """The kernel that a case names."""
    lengthscale = inputs.get("lengthscale", inputs.get("lengthscales"))
    return getattr(ig.kernels, MATERN[name])(array(lengthscale), inputs["variance"])


def column(values):
    return array(values)[:, None]


def derivative(case: dict) -> dict:
    """Derivative kernels and inducing variables by features; derivative GPs are a multioutput prior."""
    kind, name = case["name"].split("/")
    inputs = case["inputs"]
    kernel = kernel_of(name, inputs)
    if kind == "derivative_kernel":
        return jax.jit(lambda: _derivative_kernel(kernel, array(inputs["X"]), array(inputs["X2"])))()
    if kind == "derivative_inducing":
        return _derivative_inducing(kernel, inputs)
    raise NotBuilt(case["name"])


def _derivative_kernel(kernel, X, X2):
    N, D = X.shape
    first, second = ig.features.InducingDerivatives(X), ig.features.InducingDerivatives(X2)
    cross = first.apply(lambda Z: second.Kuf(kernel, Z).T)
    return {
        "K": kernel.gram(X, X2),
        "dK_dx": first.Kuf(kernel, X2).reshape(N, D, -1).swapaxes(1, 2),
        "dK_dx2": second.Kuf(kernel, X).reshape(-1, D, N).transpose(2, 0, 1),
        "d2K": cross.reshape(N, D, -1, D).swapaxes(1, 2),
    }


def _derivative_inducing(kernel, inputs):
    Z, Xs = array(inputs["Z"]), array(inputs["Xs"])
    data = array(inputs["X"]), array(inputs["y"])[:, None]
    features = ig.features.Union((ig.features.InducingPoints(Z), ig.features.InducingDerivatives(Z)))
    likelihood = ig.likelihoods.Gaussian(inputs["noise_f"])
    predicted = ig.features.Union((ig.features.InducingPoints(Xs), ig.features.InducingDerivatives(Xs)))

    def model(coordinates):
        return ig.Model(
            ig.SparseGP(
                ig.GP(kernel),
                features,
                array(inputs["q_mu"]),
                array(inputs["q_sqrt"]),
                coordinates=coordinates,
                jitter=0.0,
            ),
            likelihood,
        )

    @jax.jit
    def compute():
        white = model("w")
        layer = ig.collapse(white, data).layers[0]
        # q of the functionals (f, gradient) at Xs: they are features too
        Kuu = features.Kuu(kernel, 0.0)
        Kus = predicted.apply(lambda X: features.Kuf(kernel, X).T).T
        A = Kuu.root_solve(Kus)
        T = layer.root[0].T @ A
        return {
            "Kuu": Kuu.dense(),
            "Kuf": features.Kuf(kernel, data[0]),
            "collapsed_bound": ig.collapsed_elbo(white, data),
            "elbo_white": ig.elbo(white, data),
            "elbo_unwhite": ig.elbo(model("v"), data),
            "pred_mean": layer.mean[0] @ A,
            "pred_cov": predicted.Kuu(kernel, 0.0).dense() - A.T @ A + T.T @ T,
        }

    return compute()


def vff(case: dict) -> dict:
    """Variational Fourier features."""
    inputs = case["inputs"]
    name = case["name"].split("/")[1].removesuffix("_wide_interval")
    kernel = kernel_of(name, inputs)
    X, y = column(inputs["X"]), column(inputs["y"])
    prior, likelihood = ig.GP(kernel), ig.likelihoods.Gaussian(inputs["noise_variance"])
    wide = case["name"].endswith("_wide_interval")

    def model(num):
        gp = ig.SparseGP(prior, ig.features.Fourier(inputs["a"], inputs["b"], num), jitter=0.0)
        return ig.Model(gp, likelihood)

    def bounds(nums):
        return jnp.stack([ig.collapsed_elbo(model(int(n)), (X, y)) for n in nums])

    @jax.jit
    def compute():
        out = {"exact_lml": ig.log_evidence(model(1), (X, y))}
        if wide:
            return out | {"bounds": bounds(inputs["M"])}
        M = int(inputs["M"])
        features = ig.features.Fourier(inputs["a"], inputs["b"], M)
        mean, cov = ig.collapse(model(M), (X, y)).layers[0].joint(column(inputs["Xs"])[None])
        limit = _periodic(kernel, inputs["a"], inputs["b"], X)
        growing = bounds([M, 2 * M, 4 * M, 16 * M, 64 * M])
        return out | {
            "Kuu": features.Kuu(kernel, 0.0).dense(),
            "Kuf": features.Kuf(kernel, X),
            "Kuf_outside": features.Kuf(kernel, column(inputs["X_outside"])),
            "collapsed_bound": growing[0],
            "bounds_growing_M": growing,
            "pred_mean": mean[0, :, 0],
            "pred_cov": cov[0],
            "Q_limit": limit,
            "bound_limit": _titsias(limit, kernel.diag(X), y[:, 0], inputs["noise_variance"]),
        }

    return compute()


def _periodic(kernel, a, b, X):
    """Cov(f(X) | f⁽ʲ⁾(a) = f⁽ʲ⁾(b) for j = 0 … smoothness)."""
    ends = array([[a], [b]])

    def functional(f):
        out = []
        for _ in range(kernel.smoothness + 1):
            values = f(ends)
            out.append(values[1] - values[0])

            def f(Z, f=f):
                return jax.jvp(f, (Z,), (jnp.ones_like(Z),))[1]

        return jnp.stack(out)

    C = functional(lambda Z: kernel.gram(Z, X))
    S = functional(lambda Z: functional(lambda Y: kernel.gram(Y, Z)).T)
    return kernel.gram(X) - C.T @ jnp.linalg.solve(S, C)


def _titsias(Q, k, y, noise):
    L = jnp.linalg.cholesky(Q + noise * jnp.eye(len(y)))
    a = jax.scipy.linalg.solve_triangular(L, y[:, None], lower=True)
    log_prob = -0.5 * jnp.sum(a**2) - jnp.sum(jnp.log(jnp.diagonal(L))) - 0.5 * len(y) * jnp.log(2 * jnp.pi)
    return log_prob - 0.5 * jnp.sum(k - jnp.diagonal(Q)) / noise


def hilbert_mercer(case: dict) -> dict:
    """Hilbert-space kernels and Mercer expansions."""
    inputs = case["inputs"]
    if case["name"] == "mercer_se_gaussian":
        return jax.jit(lambda: _mercer(inputs))()
    kind, name = case["name"].split("/")
    if kind not in ("hilbert_space", "hilbert_space_2d"):
        raise NotBuilt(case["name"])
    return jax.jit(lambda: (_hilbert if kind == "hilbert_space" else _hilbert_2d)(kernel_of(name, inputs), inputs))()


def _hilbert_2d(base, inputs):
    box = [(-half, half) for half in inputs["L"]]
    kernel = get(ig.kernels, "HilbertSpace")(base, box, [int(j) for j in inputs["J"]])
    X = array(inputs["X"])
    return {"K_approx": kernel.gram(X), "K_exact": base.gram(X)}


def _hilbert(base, inputs):
    kernel = get(ig.kernels, "HilbertSpace")(base, (-inputs["L"], inputs["L"]), int(inputs["J"]))
    features = ig.features.EigenLaplacian(kernel.box, kernel.num)
    X, y, Xs = column(inputs["X"]), column(inputs["y"]), column(inputs["Xs"])
    likelihood = ig.likelihoods.Gaussian(inputs["noise_variance"])
    model = ig.Model(ig.SparseGP(ig.GP(kernel), features, jitter=0.0), likelihood)
    mean, variance = ig.collapse(model, (X, y)).layers[0].marginals(Xs)
    spectral = features.Kuu(kernel, 0.0).diagonal()
    approximate, exact = kernel.gram(X), base.gram(X)
    return {
        "K_approx": approximate,
        "K_exact": exact,
        "max_abs_error": jnp.max(jnp.abs(approximate - exact)),
        "features": (features.Kuf(kernel, X) / spectral[:, None]).T,
        "spectral": spectral,
        "log_marginal_likelihood": ig.collapsed_elbo(model, (X, y)),
        "pred_mean": mean[:, 0],
        "pred_var": variance[:, 0],
    }


def _mercer(inputs):
    kernel = ig.kernels.SquaredExponential(inputs["lengthscale"], inputs["variance"])
    features = ig.features.EigenMercer(int(inputs["num"]), [0.0], [inputs["sigma"]])
    X = column(inputs["X"])
    A = features.Kuu(kernel, 0.0).root_solve(features.Kuf(kernel, X))
    return {
        "eigenvalues": features.spectrum(kernel),
        "eigenfunctions": features.eigenfunctions(kernel, X),
        "K_8": A.T @ A,
        "K_exact": kernel.gram(X),
    }


BUILDERS = {"9_vff": vff, "10_hilbert_mercer": hilbert_mercer}
