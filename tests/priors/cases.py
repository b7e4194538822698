"""Every multioutput prior beside its joint Gaussian of (f(X), u), built from the definition."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg

import inducing as ig

from .brute import Joint, matern32, mixture, se

RNG = np.random.default_rng(0)
X1 = RNG.uniform(-1.0, 1.0, (5, 1))
X2 = RNG.uniform(-1.0, 1.0, (4, 2))
Z1 = np.linspace(-1.0, 1.0, 3)[:, None]
Z2 = RNG.uniform(-1.0, 1.0, (3, 2))


class Case(NamedTuple):
    prior: Any
    features: Any
    X: np.ndarray
    joint: Joint


def points(Z):
    return ig.features.InducingPoints(jnp.asarray(Z))


def k_se(lengthscale, variance):
    return lambda A, B: se(A, B, np.asarray(lengthscale), variance)


def k_ou(lengthscale, variance):
    return lambda A, B: variance * np.exp(-np.abs(A - B.T) / lengthscale)


def k_matern(lengthscale, variance):
    return lambda A, B: matern32(A, B, lengthscale, variance)


def zeros(X):
    return np.zeros(len(X))


def separate():
    """Three kernels of two kinds, one with a mean, each latent with its own inducing points."""
    kernels = [
        ig.GP(ig.kernels.SquaredExponential(0.7, 1.2), ig.means.Constant(0.3)),
        ig.GP(ig.kernels.Matern32(0.9, 0.8)),
        ig.GP(ig.kernels.SquaredExponential(1.1, 0.5)),
    ]
    Zs = [Z1, Z1 + 0.1, 0.8 * Z1]
    means = [lambda X: np.full(len(X), 0.3), zeros, zeros]
    joint = mixture(
        X1, np.eye(3), [k_se(0.7, 1.2), k_matern(0.9, 0.8), k_se(1.1, 0.5)], Zs, lambda X: np.zeros((len(X), 3)), means
    )
    return Case(ig.priors.Independent(kernels), [points(Z) for Z in Zs], X1, joint)


def shared():
    """One kernel and one set of inducing points for three outputs, with a linear mean of the outputs."""
    slopes = np.array([[0.5, -1.0, 2.0]])
    prior = ig.priors.Independent(ig.kernels.SquaredExponential(0.7, 1.2), num=3, mean=ig.means.Linear(slopes))
    means = [lambda X, s=s: s * X[:, 0] for s in slopes[0]]
    joint = mixture(X1, np.eye(3), [k_se(0.7, 1.2)] * 3, [Z1] * 3, lambda X: np.zeros((len(X), 3)), means)
    return Case(prior, points(Z1), X1, joint)


W = np.array([[1.0, 0.4], [-0.5, 1.2], [0.3, 0.0], [0.8, -0.9]])


def lmc():
    """Four outputs of two latents, with means of latents and of outputs."""
    latents = [ig.GP(ig.kernels.SquaredExponential(0.7, 1.2), ig.means.Constant(0.3)), ig.kernels.Matern32(0.9, 0.8)]
    prior = ig.priors.LMC(W, latents, mean=ig.means.Constant([0.0, 1.0, 2.0, 3.0]))
    joint = mixture(
        X1,
        W,
        [k_se(0.7, 1.2), k_matern(0.9, 0.8)],
        [Z1] * 2,
        lambda X: np.tile(np.arange(4.0), (len(X), 1)),
        [lambda X: np.full(len(X), 0.3), zeros],
    )
    return Case(prior, points(Z1), X1, joint)


def intrinsic():
    w, kappa = np.array([1.0, -0.5]), np.array([0.3, 0.6])
    prior = ig.priors.IntrinsicCoregionalisation(w, kappa, ig.kernels.SquaredExponential(0.7, 1.2))
    mixing = np.concatenate([w[:, None], np.diag(np.sqrt(kappa))], axis=1)
    joint = mixture(X1, mixing, [k_se(0.7, 1.2)] * 3, [Z1] * 3, lambda X: np.zeros((len(X), 2)), [zeros] * 3)
    return Case(prior, points(Z1), X1, joint)


def matrix_valued():
    """B k(x, x') with inducing variables f_p(z)."""
    w, kappa = np.array([[1.0], [-0.5]]), np.array([0.3, 0.6])
    kernel = ig.kernels.ActiveDims(ig.kernels.SquaredExponential(0.7, 1.2), (0,))
    kernel = kernel * ig.kernels.ActiveDims(ig.kernels.Coregion(w, kappa), (1,))
    prior = ig.priors.MatrixValued(kernel, num_outputs=2, mean=ig.means.Linear([[1.0, 2.0]]))
    B = w @ w.T + np.diag(kappa)
    pairs = np.array([[z, p] for z in Z1[:, 0] for p in (0.0, 1.0)])

    def cov(rows, columns):
        return se(rows[:, :1], columns[:, :1], 0.7, 1.2) * B[rows[:, 1].astype(int)][:, columns[:, 1].astype(int)]

    rows = np.array([[x, p] for x in X1[:, 0] for p in (0.0, 1.0)])

    def mean(r):
        return r[:, 0] * (1.0 + r[:, 1])

    return Case(
        prior,
        points(pairs),
        X1,
        Joint(mean(rows), mean(pairs), cov(rows, rows), cov(rows, pairs), cov(pairs, pairs)),
    )


WIDTH = np.array([[0.2, 0.5], [0.6, 0.3], [0.4, 0.4]])
AMPLITUDE = np.array([[1.0, -0.5], [0.7, 0.8], [0.0, 1.5]])


def gaussian_smoothing(t, p, l):
    s = WIDTH[p, l]
    return AMPLITUDE[p, l] * np.exp(-0.5 * (t / s) ** 2) / np.sqrt(2 * np.pi * s**2)


def integrated(X, kernels, Zs, G, P, grid):
    """The joint of a convolution process by the trapezoid rule on a grid of latent inputs."""
    N, L, M = len(X), len(kernels), len(Zs[0])
    t, h = grid[:, None], grid[1] - grid[0]
    Sff, Sfu, Suu = np.zeros((N * P, N * P)), np.zeros((N * P, L * M)), np.zeros((L * M, L * M))
    for l, kernel in enumerate(kernels):
        smoothing = np.stack([G(X[:, 0][:, None] - grid[None, :], p, l) * h for p in range(P)], axis=1)
        smoothing = smoothing.reshape(N * P, -1)
        Sff += smoothing @ kernel(t, t) @ smoothing.T
        Sfu[:, l * M : (l + 1) * M] = smoothing @ kernel(t, Zs[l])
        Suu[l * M : (l + 1) * M, l * M : (l + 1) * M] = kernel(Zs[l], Zs[l])
    return Joint(np.zeros(N * P), np.zeros(L * M), Sff, Sfu, Suu)


def convolution():
    """Closed form against numerical integration."""
    prior = ig.priors.ConvolutionProcess(
        ig.priors.GaussianSmoothing(WIDTH, AMPLITUDE),
        [ig.kernels.SquaredExponential(0.7, 1.2), ig.kernels.SquaredExponential(0.4, 0.8)],
    )
    kernels = [k_se(0.7, 1.2), k_se(0.4, 0.8)]
    joint = integrated(X1, kernels, [Z1] * 2, gaussian_smoothing, 3, np.linspace(-6, 6, 401))
    return Case(prior, points(Z1), X1, joint)


def se_derivatives(A, B, lengthscale, variance):
    """Cov of (f, ∂_1 f, ∂_2 f) at A and B for the squared exponential, by its formulas: [N, 3, N2, 3]."""
    k, d = se(A, B, lengthscale, variance), (A[:, None] - B[None]) / lengthscale**2
    out = np.zeros((len(A), 3, len(B), 3))
    out[:, 0, :, 0] = k
    for e in range(2):
        out[:, 0, :, 1 + e] = d[..., e] * k
        out[:, 1 + e, :, 0] = -d[..., e] * k
        for c in range(2):
            out[:, 1 + e, :, 1 + c] = ((e == c) / lengthscale[e] ** 2 - d[..., e] * d[..., c]) * k
    return out


def integrated_features(X, kernels, functionals, G, P, grid):
    """The same for features of the latents that are integrals: u_l = Φ_l g_l(grid), Φ_l [M, T] with the weights."""
    N, L, M = len(X), len(kernels), len(functionals[0])
    t, h = grid[:, None], grid[1] - grid[0]
    Sff, Sfu, Suu = np.zeros((N * P, N * P)), np.zeros((N * P, L * M)), np.zeros((L * M, L * M))
    for l, (kernel, Phi) in enumerate(zip(kernels, functionals, strict=True)):
        smoothing = np.stack([G(X[:, 0][:, None] - grid[None, :], p, l) * h for p in range(P)], axis=1)
        smoothing, K, own = smoothing.reshape(N * P, -1), kernel(t, t), slice(l * M, (l + 1) * M)
        Sff += smoothing @ K @ smoothing.T
        Sfu[:, own] = smoothing @ K @ Phi.T
        Suu[own, own] = Phi @ K @ Phi.T
    return Joint(np.zeros(N * P), np.zeros(L * M), Sff, Sfu, Suu)


GRID = np.linspace(-6, 6, 401)


def _smoothed(features, functionals):
    kernels = [ig.kernels.SquaredExponential(0.7, 1.2), ig.kernels.SquaredExponential(0.4, 0.8)]
    prior = ig.priors.ConvolutionProcess(ig.priors.GaussianSmoothing(WIDTH, AMPLITUDE), kernels)
    formulas = [k_se(0.7, 1.2), k_se(0.4, 0.8)]
    return Case(prior, features, X1, integrated_features(X1, formulas, functionals, gaussian_smoothing, 3, GRID))


def normal(t, mean, std):
    return np.exp(-0.5 * ((t - mean) / std) ** 2) / np.sqrt(2 * np.pi * std**2)


def convolution_of_eigenfeatures():
    """Eigenfeatures belong to the kernel of each latent, which smoothing leaves behind."""
    mean, std, M = 0.1, 0.8, 4

    def functional(lengthscale):  # v_k(t) ρ(t), Rasmussen & Williams (4.39)
        a, b = 0.25 / std**2, 0.5 / lengthscale**2
        c, z = np.sqrt(a * a + 2 * a * b), GRID - mean
        H = [np.polynomial.hermite.hermval(np.sqrt(2 * c) * z, np.eye(M)[k]) for k in range(M)]
        scale = [(c / a) ** 0.25 / np.sqrt(2.0**k * math.factorial(k)) for k in range(M)]
        v = np.stack([s * np.exp(-(c - a) * z**2) * h for s, h in zip(scale, H, strict=True)])
        return v * normal(GRID, mean, std) * (GRID[1] - GRID[0])

    return _smoothed(ig.features.EigenMercer(M, [mean], [std]), [functional(0.7), functional(0.4)])


def convolution_of_multiscale():
    widths = np.array([0.2, 0.5, 0.3])
    functional = np.stack([normal(GRID, z, s) for z, s in zip(Z1[:, 0], widths, strict=True)]) * (GRID[1] - GRID[0])
    return _smoothed(ig.features.Multiscale(Z1, widths[:, None]), [functional] * 2)


INTERVAL = (-1.6, 1.8)


def waves(x, num, order):
    """Derivatives of 1, cos ω_m(x − a), sin ω_m(x − a): [2 num + 1, n]."""
    omega = 2 * np.pi * np.arange(1, num + 1)[:, None] / (INTERVAL[1] - INTERVAL[0])
    angle = omega * (np.asarray(x)[None, :] - INTERVAL[0]) + 0.5 * np.pi * order
    one = np.full((1, len(x)), float(order == 0))
    return np.concatenate([one, omega**order * np.cos(angle), omega**order * np.sin(angle)])


def matern_inner_products(p, lengthscale, variance, num):
    """⟨φ_m, φ_n⟩ of Matérn 1/2, 3/2 or 5/2 on the interval, by quadrature (Durrande et al. 2016, section 3)."""
    a, b = INTERVAL
    lam, s2 = np.sqrt(2 * p - 1) / lengthscale, variance
    t, w = np.polynomial.legendre.leggauss(200)
    x, w = a + (b - a) * (t + 1) / 2, w * (b - a) / 2
    operator = sum(math.comb(p, j) * lam ** (p - j) * waves(x, num, j) for j in range(p + 1))  # (λ + d/dx)ᵖ φ
    c = {1: 1 / (2 * lam), 2: 1 / (4 * lam**3), 3: 3 / (16 * lam**5)}[p] / s2
    f0, f1, f2 = (waves([a], num, j) @ waves([a], num, j).T for j in range(3))
    cross = waves([a], num, 0) @ waves([a], num, 2).T
    ends = {
        1: f0,
        2: f0 + f1 / lam**2,
        3: 9 / 8 * (f0 + f2 / lam**4) + 3 * f1 / lam**2 + 3 / 8 * (cross + cross.T) / lam**2,
    }
    return c * (operator * w) @ operator.T + ends[p] / s2


def fourier_mixture():
    """Fourier features of latents of two smoothnesses, whose Kuu have low-rank parts of one and of two columns."""
    prior = ig.priors.LMC(W, [ig.kernels.Matern12(0.7, 1.2), ig.kernels.Matern32(0.9, 0.8)])
    joint = mixture(X1, W, [k_ou(0.7, 1.2), k_matern(0.9, 0.8)], [Z1] * 2, lambda X: np.zeros((len(X), 4)), [zeros] * 2)
    phi = waves(X1[:, 0], 2, 0)  # Cov(u, g(x)), for every Matérn kernel
    Sfu = np.einsum("pl,mn->nplm", W, phi).reshape(len(joint.Sff), -1)
    Suu = scipy.linalg.block_diag(matern_inner_products(1, 0.7, 1.2, 2), matern_inner_products(2, 0.9, 0.8, 2))
    joint = joint._replace(Sfu=Sfu, Suu=Suu, mu_u=np.zeros(10))
    return Case(prior, ig.features.Fourier(*INTERVAL, 2), X1, joint)


def fourier_gradient():
    """Values and slopes of a Matérn 5/2 process."""
    lengthscale, variance = 0.8, 1.3
    prior = ig.priors.Derivative(ig.GP(ig.kernels.Matern52(lengthscale, variance)), dim=1, values=True)
    tau = X1 - X1.T
    a, q = np.sqrt(5) * np.abs(tau) / lengthscale, 5 * variance / (3 * lengthscale**2)
    Sff = np.zeros((5, 2, 5, 2))
    Sff[:, 0, :, 0] = variance * (1 + a + a**2 / 3) * np.exp(-a)
    Sff[:, 0, :, 1] = q * tau * (1 + a) * np.exp(-a)
    Sff[:, 1, :, 0] = -Sff[:, 0, :, 1]
    Sff[:, 1, :, 1] = q * (1 + a - a**2) * np.exp(-a)
    Sfu = np.stack([waves(X1[:, 0], 2, 0).T, waves(X1[:, 0], 2, 1).T], axis=1).reshape(10, -1)
    joint = Joint(
        np.zeros(10), np.zeros(5), Sff.reshape(10, 10), Sfu, matern_inner_products(3, lengthscale, variance, 2)
    )
    return Case(prior, ig.features.Fourier(*INTERVAL, 2), X1, joint)


ARD = np.array([0.8, 1.3])


def gradient():
    """Values and gradients of a scalar GP with a linear mean."""
    gp = ig.GP(ig.kernels.SquaredExponential(ARD, 1.2), ig.means.Linear([0.5, -0.2], bias=1.0))
    prior = ig.priors.Derivative(gp, dim=2, values=True)
    K, Kuf = se_derivatives(X2, X2, ARD, 1.2), se_derivatives(X2, Z2, ARD, 1.2)[..., 0]
    slope = np.array([0.5, -0.2])
    mean = np.stack([np.concatenate([[x @ slope + 1.0], slope]) for x in X2])
    joint = Joint(mean.reshape(-1), Z2 @ slope + 1.0, K.reshape(12, 12), Kuf.reshape(12, 3), se(Z2, Z2, ARD, 1.2))
    return Case(prior, points(Z2), X2, joint)


def jacobian():
    """The flattened Jacobian of a coregionalised GP."""
    prior = ig.priors.Derivative(ig.priors.LMC(W[:3], ig.kernels.SquaredExponential(ARD, 1.2)), dim=2)
    K, Kuf = se_derivatives(X2, X2, ARD, 1.2)[:, 1:, :, 1:], se_derivatives(X2, Z2, ARD, 1.2)[:, 1:, :, 0]
    N, P, M = len(X2), 3, len(Z2)
    Sff = np.einsum("pl,ndme,ql->npdmqe", W[:3], K, W[:3]).reshape(N * P * 2, -1)
    Sfu = np.einsum("pl,ndm->npdlm", W[:3], Kuf).reshape(N * P * 2, -1)
    joint = Joint(np.zeros(N * P * 2), np.zeros(2 * M), Sff, Sfu, np.kron(np.eye(2), se(Z2, Z2, ARD, 1.2)))
    return Case(prior, points(Z2), X2, joint)


def jacobian_and_values():
    """Each of two independent GPs with its derivatives: outputs of one are correlated, with those of the other not."""
    prior = ig.priors.Derivative(ig.priors.Independent(ig.kernels.SquaredExponential(ARD, 1.2), num=2), 2, values=True)
    K, Kuf = se_derivatives(X2, X2, ARD, 1.2), se_derivatives(X2, Z2, ARD, 1.2)[..., 0]
    N, P, M = len(X2), 2, len(Z2)
    Sff = np.einsum("ndme,pq->npdmqe", K, np.eye(2)).reshape(N * P * 3, -1)
    Sfu = np.einsum("ndm,pl->npdlm", Kuf, np.eye(2)).reshape(N * P * 3, -1)
    joint = Joint(np.zeros(N * P * 3), np.zeros(2 * M), Sff, Sfu, np.kron(np.eye(2), se(Z2, Z2, ARD, 1.2)))
    return Case(prior, points(Z2), X2, joint)


IMAGES = RNG.normal(size=(3, 5 * 4 * 2))  # 5 × 4 pixels, two channels
PATCHES = RNG.normal(size=(4, 3 * 2 * 2))


def image_patches(image):
    """Patches 3 × 2, two apart: rows from 0 and 2, columns from 0 and 2."""
    pixels = image.reshape(5, 4, 2)
    return np.stack([pixels[i : i + 3, j : j + 2].reshape(-1) for i in (0, 2) for j in (0, 2)])


def _image(readouts, **options):
    kernel = ig.kernels.SquaredExponential(2.5, 1.2)
    prior = ig.priors.ImageConvolution(kernel, (5, 4, 2), (3, 2), stride=2, **options)
    every = np.concatenate([image_patches(x) for x in IMAGES])
    R = np.kron(np.eye(3), readouts)  # outputs of an image from its patches
    L = options.get("num", 1)
    Sff = np.kron(R @ se(every, every, 2.5, 1.2) @ R.T, np.eye(L))
    Sfu = np.kron(R @ se(every, PATCHES, 2.5, 1.2), np.eye(L))  # [(n, l), (m, l)]
    Sfu = Sfu.reshape(len(Sfu), len(PATCHES), L).swapaxes(1, 2).reshape(len(Sfu), -1)
    own = np.arange(len(Sff)).reshape(3, -1, L).swapaxes(1, 2).reshape(-1)  # the outputs of a latent together
    Sff, Sfu = Sff[own][:, own], Sfu[own]
    Suu = np.kron(np.eye(L), se(PATCHES, PATCHES, 2.5, 1.2))
    return Case(prior, points(PATCHES), IMAGES, Joint(np.zeros(len(Sff)), np.zeros(len(Suu)), Sff, Sfu, Suu))


def patch_responses():
    """The four responses of each of two latents."""
    return _image(np.eye(4), num=2)


def patch_means():
    """Two outputs, each a weighted mean over the patches."""
    weights = np.array([1.0, -0.5, 2.0, 0.3])
    return _image(weights[None] / 4, weights=weights, num=2)


BUILDERS = (
    separate, shared, lmc, intrinsic, matrix_valued, convolution, gradient, jacobian, jacobian_and_values,
    patch_responses, patch_means
)  # fmt: skip
INTERDOMAIN = convolution_of_eigenfeatures, convolution_of_multiscale, fourier_mixture, fourier_gradient
