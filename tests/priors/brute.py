"""Multioutput priors by brute force, in NumPy: the joint Gaussian of (f(X), u), and what follows from it."""

from typing import NamedTuple

import numpy as np


def se(A, B, lengthscale, variance):
    """The squared exponential, term by term."""
    d = (A[:, None, :] - B[None, :, :]) / lengthscale
    return variance * np.exp(-0.5 * np.sum(d**2, axis=-1))


def matern32(A, B, lengthscale, variance):
    r = np.sqrt(3.0 * np.sum(((A[:, None, :] - B[None, :, :]) / lengthscale) ** 2, axis=-1))
    return variance * (1.0 + r) * np.exp(-r)


class Joint(NamedTuple):
    """Means and covariances of f(X), flattened datum by datum, and u, flattened latent by latent."""

    mu_f: np.ndarray
    mu_u: np.ndarray
    Sff: np.ndarray
    Sfu: np.ndarray
    Suu: np.ndarray


def mixture(X, W, kernels, Zs, mu_f, mu_g):
    """f(x) = μ(x) + W g(x), u_l = g_l(Z_l): built entry by entry from the definition."""
    N, (P, L), M = len(X), W.shape, len(Zs[0])
    Sff = np.zeros((N * P, N * P))
    Sfu = np.zeros((N * P, L * M))
    Suu = np.zeros((L * M, L * M))
    for l in range(L):
        Sff += np.kron(kernels[l](X, X), np.outer(W[:, l], W[:, l]))
        Sfu[:, l * M : (l + 1) * M] = np.kron(kernels[l](X, Zs[l]), W[:, l : l + 1])
        Suu[l * M : (l + 1) * M, l * M : (l + 1) * M] = kernels[l](Zs[l], Zs[l])
    mean = np.stack([mu_g[l](X) for l in range(L)], axis=1) @ W.T + mu_f(X)
    mu_u = np.concatenate([mu_g[l](Zs[l]) for l in range(L)])
    return Joint(mean.reshape(-1), mu_u, Sff, Sfu, Suu)


def posterior(joint, m, S):
    """eq:sparse_mvg: mean and covariance of f(X) under q(u) = N(m, S)."""
    B = joint.Sfu @ np.linalg.inv(joint.Suu)
    return joint.mu_f + B @ (m - joint.mu_u), joint.Sff - B @ (joint.Suu - S) @ B.T


def kl(joint, m, S):
    inverse, d = np.linalg.inv(joint.Suu), m - joint.mu_u
    logdets = np.linalg.slogdet(joint.Suu)[1] - np.linalg.slogdet(S)[1]
    return 0.5 * (np.trace(inverse @ S) + d @ inverse @ d - len(m) + logdets)


def elbo(joint, m, S, y, noise):
    """The bound for Gaussian labels y [N·P], NaN where missing, with noise variances [N·P]."""
    seen = ~np.isnan(y)
    mean, cov = posterior(joint, m, S)
    terms = -0.5 * (np.log(2 * np.pi * noise) + ((y - mean) ** 2 + np.diagonal(cov)) / noise)
    return np.sum(terms[seen]) - kl(joint, m, S)


def collapsed(joint, y, noise):
    """Titsias' bound."""
    seen = ~np.isnan(y)
    r, Sfu, s = (y - joint.mu_f)[seen], joint.Sfu[seen], noise[seen]
    inverse = np.linalg.inv(joint.Suu)
    Q = Sfu @ inverse @ Sfu.T
    C = Q + np.diag(s)
    trace = np.sum((np.diagonal(joint.Sff)[seen] - np.diagonal(Q)) / s)
    return -0.5 * (r @ np.linalg.solve(C, r) + np.linalg.slogdet(C)[1] + len(r) * np.log(2 * np.pi) + trace)


def evidence(joint, y, noise):
    seen = ~np.isnan(y)
    r, C = (y - joint.mu_f)[seen], (joint.Sff + np.diag(noise))[np.ix_(seen, seen)]
    return -0.5 * (r @ np.linalg.solve(C, r) + np.linalg.slogdet(C)[1] + len(r) * np.log(2 * np.pi))
