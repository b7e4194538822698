"""Gaussian processes in NumPy: kernels, means, functionals of a process, priors and q(f).

Everything is a linear functional of independent latent processes, written as a weighted sum of *atoms*: values of the
process, or of one of its partial derivatives, at points. Integrals become atoms by Gauss quadrature. Covariances of
functionals are then W k(atoms, atoms) Wᵀ. Derivatives of kernels come from numbers that carry them (`Jet`).

The one exception are Fourier features, inner products in the Hilbert space of a Matérn kernel, which are integrated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy.linalg import block_diag, expm
from scipy.special import comb, eval_hermite, factorial

from tests.composer.parts import Part

Array = np.ndarray
Mean = Callable[[list["Jet"]], "Jet"]


class Jet:
    """A number v that carries its derivatives ∂_a v and ∂_b v along two directions, and ∂_a ∂_b v."""

    __array_ufunc__ = None

    def __init__(self, v: Any, a: Any = 0.0, b: Any = 0.0, ab: Any = 0.0):
        self.v, self.a, self.b, self.ab = v, a, b, ab

    def __add__(self, other: Any) -> "Jet":
        o = _jet(other)
        return Jet(self.v + o.v, self.a + o.a, self.b + o.b, self.ab + o.ab)

    def __mul__(self, other: Any) -> "Jet":
        o = _jet(other)
        ab = self.ab * o.v + self.a * o.b + self.b * o.a + self.v * o.ab
        return Jet(self.v * o.v, self.a * o.v + self.v * o.a, self.b * o.v + self.v * o.b, ab)

    def __sub__(self, other: Any) -> "Jet":
        return self + _jet(other) * -1.0

    __radd__, __rmul__ = __add__, __mul__

    def through(self, f: Any, f1: Any, f2: Any) -> "Jet":
        """The value of a function whose value and first two derivatives at v are given."""
        return Jet(f, f1 * self.a, f1 * self.b, f1 * self.ab + f2 * (self.a * self.b))


def _jet(value: Any) -> Jet:
    return value if isinstance(value, Jet) else Jet(value)


FUNCTIONS: dict[str, Callable[[Jet], Jet]] = {
    "jnp.tanh": lambda x: x.through(np.tanh(x.v), 1 - np.tanh(x.v) ** 2, -2 * np.tanh(x.v) * (1 - np.tanh(x.v) ** 2)),
    "jnp.sin": lambda x: x.through(np.sin(x.v), np.cos(x.v), -np.sin(x.v)),
    "jnp.cos": lambda x: x.through(np.cos(x.v), -np.sin(x.v), -np.cos(x.v)),
}


# Kernels: functions of two points, given as lists of jets.


def _per_dimension(value: Any, dim: int) -> Array:
    return np.broadcast_to(np.asarray(value, float), (dim,))


def _profile(part: Part, s: Jet) -> Jet:
    """g(s) of a stationary kernel, s = r², with dg/ds and d²g/ds². An infinite derivative at 0 always meets a 0."""
    positive = s.v > 0
    r = np.sqrt(s.v)
    inverse = np.where(positive, 1.0 / np.where(positive, r, 1.0), 0.0)
    if part.kind == "SquaredExponential":
        g = np.exp(-0.5 * s.v)
        return s.through(g, -0.5 * g, 0.25 * g)
    if part.kind == "RationalQuadratic":
        alpha = part["alpha"]
        base = 1.0 + s.v / (2.0 * alpha)
        return s.through(base**-alpha, -0.5 * base ** (-alpha - 1), 0.25 * (alpha + 1) / alpha * base ** (-alpha - 2))
    c = {"Matern12": 1.0, "Matern32": 3**0.5, "Matern52": 5**0.5}[part.kind]
    e = np.exp(-c * r)
    if part.kind == "Matern12":
        return s.through(e, -0.5 * e * inverse, np.nan * e)
    if part.kind == "Matern32":
        return s.through((1 + c * r) * e, -0.5 * c**2 * e, 0.25 * c**3 * e * inverse)
    return s.through((1 + c * r + c**2 * s.v / 3) * e, -(c**2) / 6 * (1 + c * r) * e, c**4 / 12 * e)


def _stationary(part: Part, x: list[Jet], y: list[Jet]) -> Jet:
    lengths = _per_dimension(part["lengthscale"], len(x))
    s = sum(((a - b) * (a - b) * (1.0 / l**2) for a, b, l in zip(x, y, lengths, strict=True)), Jet(0.0))
    return _profile(part, s) * part["variance"]


def _periodic(part: Part, x: list[Jet], y: list[Jet]) -> Jet:
    base = part["base"]
    lengths, periods = _per_dimension(base["lengthscale"], len(x)), _per_dimension(part["period"], len(x))
    s = Jet(0.0)
    for a, b, l, p in zip(x, y, lengths, periods, strict=True):
        wave = FUNCTIONS["jnp.sin"]((a - b) * (np.pi / p))
        s = s + wave * wave * (1.0 / l**2)
    return _profile(base, s) * base["variance"]


def _linear(part: Part, x: list[Jet], y: list[Jet]) -> Jet:
    variance = _per_dimension(part["variance"], len(x))
    return sum((a * b * v for a, b, v in zip(x, y, variance, strict=True)), Jet(0.0))


def _polynomial(part: Part, x: list[Jet], y: list[Jet]) -> Jet:
    return reduce(Jet.__mul__, [_linear(part, x, y) + part["offset"]] * part["degree"])


def _cosine(part: Part, x: list[Jet], y: list[Jet]) -> Jet:
    lengths = _per_dimension(part["lengthscale"], len(x))
    turns = sum(((a - b) * (2 * np.pi / l) for a, b, l in zip(x, y, lengths, strict=True)), Jet(0.0))
    return FUNCTIONS["jnp.cos"](turns) * part["variance"]


def _arc_cosine(part: Part, x: list[Jet], y: list[Jet]) -> Jet:
    """Values only: the covariance of σ √2 relu(w·x + b)ⁿ."""
    weight, order = _per_dimension(part["weight_variance"], len(x)), part["order"]
    inner = sum(a.v * b.v * w for a, b, w in zip(x, y, weight, strict=True)) + part["bias_variance"]
    xx = sum(a.v**2 * w for a, w in zip(x, weight, strict=True)) + part["bias_variance"]
    yy = sum(b.v**2 * w for b, w in zip(y, weight, strict=True)) + part["bias_variance"]
    cos = np.clip(inner / np.sqrt(xx * yy), -1.0, 1.0)
    theta = np.arccos(cos)
    angular = (
        np.pi - theta,
        np.sin(theta) + (np.pi - theta) * cos,
        3 * np.sin(theta) * cos + (np.pi - theta) * (1 + 2 * cos**2),
    )[order]
    return Jet(part["variance"] / np.pi * (xx * yy) ** (order / 2) * angular, np.nan, np.nan, np.nan)


def _spectral_mixture(part: Part, x: list[Jet], y: list[Jet]) -> Jet:
    total = Jet(0.0)
    for weight, frequencies, scales in zip(part["weights"], part["means"], part["scales"], strict=True):
        s, turns = Jet(0.0), Jet(0.0)
        for a, b, frequency, scale in zip(x, y, frequencies, scales, strict=True):
            s = s + (a - b) * (a - b) * (2 * np.pi * scale) ** 2
            turns = turns + (a - b) * (2 * np.pi * frequency)
        g = np.exp(-0.5 * s.v)
        total = total + s.through(g, -0.5 * g, 0.25 * g) * FUNCTIONS["jnp.cos"](turns) * weight
    return total


def _change_point(part: Part, x: list[Jet], y: list[Jet]) -> Jet:
    dim, steep = part["dim"], part["steepness"]

    def steps(z: list[Jet]) -> list[Jet]:
        out = [Jet(1.0)]
        for c in part["locations"]:
            half = FUNCTIONS["jnp.tanh"]((z[dim] - c) * (0.5 * steep))
            out.append((half + 1.0) * 0.5)  # a sigmoid
        return [*out, Jet(0.0)]

    at_x, at_y = steps(x), steps(y)
    total = Jet(0.0)
    for i, kernel in enumerate(part["kernels"]):
        weights = [at[i] * (Jet(1.0) - at[i + 1]) for at in (at_x, at_y)]
        total = total + weights[0] * kernel_of(kernel, x, y) * weights[1]
    return total


def _coregion(part: Part, x: list[Jet], y: list[Jet]) -> Jet:
    W = np.asarray(part["W"])
    B = W @ W.T + np.diag(part["kappa"])
    return Jet(B[np.round(x[0].v).astype(int), np.round(y[0].v).astype(int)])


def _categorical(part: Part, x: list[Jet], y: list[Jet]) -> Jet:
    same = np.prod(
        [np.where(np.round(a.v) == np.round(b.v), 1.0, part["correlation"]) for a, b in zip(x, y, strict=True)], axis=0
    )
    return Jet(part["variance"] * same)


KERNELS: dict[str, Callable[[Part, list[Jet], list[Jet]], Jet]] = {
    **dict.fromkeys(["SquaredExponential", "RationalQuadratic", "Matern12", "Matern32", "Matern52"], _stationary),
    "Periodic": _periodic,
    "Linear": _linear,
    "Polynomial": _polynomial,
    "Cosine": _cosine,
    "ArcCosine": _arc_cosine,
    "SpectralMixture": _spectral_mixture,
    "ChangePoint": _change_point,
    "Coregion": _coregion,
    "Categorical": _categorical,
    "Constant": lambda part, x, y: Jet(part["variance"] + 0.0 * (x[0].v - y[0].v)),
    "ActiveDims": lambda part, x, y: kernel_of(part["kernel"], *([z[d] for d in part["dims"]] for z in (x, y))),
    "Warped": lambda part, x, y: kernel_of(
        part["kernel"], *([FUNCTIONS[part["function"].name](z_d) for z_d in z] for z in (x, y))
    ),
    "+": lambda part, x, y: reduce(Jet.__add__, [kernel_of(k, x, y) for k in part.args]),
    "*": lambda part, x, y: reduce(Jet.__mul__, [kernel_of(k, x, y) for k in part.args]),
}


def kernel_of(part: Part, x: list[Jet], y: list[Jet]) -> Jet:
    """k(x, y) with its derivatives."""
    return KERNELS[part.kind](part, x, y)


# Means: functions of a point with one value, or one for each output.


def mean_of(part: Part | float | None, x: list[Jet]) -> list[Jet]:
    """The values of a mean at a point."""
    zero = x[0] * 0.0
    if part is None:
        return [zero]
    if not isinstance(part, Part):
        return [zero + part]
    if part.kind in ("+", "*"):
        first, second = (mean_of(m, x) for m in part.args)
        num = max(len(first), len(second))
        pairs = zip(first * (num // len(first)), second * (num // len(second)), strict=True)
        return [a + b if part.kind == "+" else a * b for a, b in pairs]
    if part.kind == "Identity":
        return x
    if part.kind == "Constant":
        return [zero + float(c) for c in np.atleast_1d(part["value"])]
    if part.kind == "Function":
        return [FUNCTIONS[part["function"].name](x_d) for x_d in x]
    A = np.asarray(part["weights"], float)
    A = A[:, None] if A.ndim == 1 else A
    b = np.broadcast_to(part["bias"], A.shape[1:])
    return [
        sum((x_d * a for x_d, a in zip(x, column, strict=True)), zero + c) for column, c in zip(A.T, b, strict=True)
    ]


# Functionals.


@dataclass(frozen=True)
class Atoms:
    """R functionals: weights [R, n] of the values of a process at points [n, D] (columns −1), or of ∂/∂x_column."""

    points: Array
    columns: Array
    weights: Array


@dataclass(frozen=True)
class Uncorrelated(Atoms):
    """Functionals that are independent of each other, to which no jitter is added."""


@dataclass(frozen=True)
class Waves:
    """Inner products with 1, cos and sin on [a, b] in the Hilbert space of a Matérn kernel."""

    a: float
    b: float
    num: int

    def values(self, x: Array, orders: Array) -> Array:
        """The waves, or their derivatives of given orders, at points x [n]: [M, n]."""
        omega = 2 * np.pi * np.arange(self.num + 1) / (self.b - self.a)
        angle = np.multiply.outer(omega, x - self.a) + 0.5 * np.pi * orders[None]
        size = omega[:, None] ** orders[None]
        return np.concatenate([size * np.cos(angle), (size * np.sin(angle))[1:]])


@dataclass(frozen=True)
class Tensor:
    """Tensor products of functionals of single columns, for a product of kernels of these columns."""

    parts: list[Any]


@dataclass(frozen=True)
class Blocks:
    """Functionals of the terms of a sum of independent processes."""

    parts: list[Any]


@dataclass(frozen=True)
class Joined:
    """Functionals of different kinds of one process."""

    parts: list[Any]


def _coordinates(A: Atoms, axis: int) -> list[Jet]:
    """The points as jets that move along each atom's own column: in direction a on axis 0, in direction b on axis 1."""
    out = []
    for d in range(A.points.shape[1]):
        moves = (A.columns == d).astype(float)
        if axis == 0:
            out.append(Jet(A.points[:, d][:, None], a=moves[:, None]))
        else:
            out.append(Jet(A.points[:, d][None, :], b=moves[None, :]))
    return out


def _gram(kernel: Part, A: Atoms, B: Atoms) -> Array:
    """The covariance of single atoms."""
    shape = len(A.points), len(B.points)
    k = kernel_of(kernel, _coordinates(A, 0), _coordinates(B, 1))
    v, a, b, ab = (np.broadcast_to(t, shape) for t in (k.v, k.a, k.b, k.ab))
    first, second = (A.columns >= 0)[:, None], (B.columns >= 0)[None, :]
    return np.where(first & second, ab, np.where(first, a, np.where(second, b, v)))


def _on(kernel: Part, B: Atoms) -> tuple[Part, Atoms]:
    """A kernel of some columns, without the choice of columns, and what atoms are to it."""
    if kernel.kind != "ActiveDims":
        return kernel, B
    dims = list(kernel["dims"])
    columns = np.array([dims.index(c) if c in dims else -1 for c in B.columns])
    return kernel["kernel"], Atoms(B.points[:, dims], columns, np.eye(len(B.points)))


def _inner(kernel: Part) -> Part:
    return kernel["kernel"] if kernel.kind == "ActiveDims" else kernel


def covariance(kernel: Part, A: Any, B: Atoms) -> Array:
    """Cov(A, B) of functionals A of any kind and of atoms."""
    if isinstance(A, Joined):
        return np.concatenate([covariance(kernel, part, B) for part in A.parts])
    if isinstance(A, Waves):
        return _covariances(A, kernel, B.points[:, 0], (B.columns >= 0).astype(int)) @ B.weights.T
    if isinstance(A, Atoms):
        return A.weights @ _gram(kernel, A, B) @ B.weights.T
    alone = Atoms(B.points, B.columns, np.eye(len(B.points)))
    rows = []
    for part, own in zip(A.parts, kernel.args, strict=True):
        inner, atoms = _on(own, alone)
        outside = (B.columns >= 0) & (atoms.columns < 0)  # a term or factor does not depend on the other columns
        rows.append((covariance(inner, part, atoms), outside))
    if isinstance(A, Blocks):
        return np.concatenate([np.where(outside[None], 0.0, K) for K, outside in rows]) @ B.weights.T
    return reduce(lambda K, L: (K[:, None] * L[None]).reshape(-1, K.shape[1]), [K for K, _ in rows]) @ B.weights.T


def gram_and_root(kernel: Part, A: Any, jitter: float) -> tuple[Array, Array]:
    """Cov(A, A) with the jitter that the library documents, and the root that its coordinates w are defined by."""
    if isinstance(A, Tensor):
        each = [gram_and_root(_inner(own), part, jitter) for part, own in zip(A.parts, kernel.args, strict=True)]
        return reduce(np.kron, [K for K, _ in each]), reduce(np.kron, [R for _, R in each])
    if isinstance(A, Blocks):
        each = [gram_and_root(_inner(own), part, jitter) for part, own in zip(A.parts, kernel.args, strict=True)]
        return block_diag(*[K for K, _ in each]), block_diag(*[R for _, R in each])
    if isinstance(A, Waves):
        return _waves_gram(kernel, A)
    if isinstance(A, Uncorrelated):
        K = covariance(kernel, A, A)
        np.testing.assert_allclose(K, np.diag(np.diag(K)), atol=1e-10)
        return np.diag(np.diag(K)), np.diag(np.sqrt(np.diag(K)))
    if isinstance(A, Joined):
        sizes = [len(part.weights) if isinstance(part, Atoms) else 2 * part.num + 1 for part in A.parts]
        ends = np.cumsum([0, *sizes])
        K = np.zeros((ends[-1], ends[-1]))
        for i, part in enumerate(A.parts):
            rows = slice(ends[i], ends[i + 1])
            if isinstance(part, Atoms):
                K[:, rows] = covariance(kernel, A, part)
                K[rows] = K[:, rows].T
            else:
                K[rows, rows] = _waves_gram(kernel, part)[0]
    else:
        K = covariance(kernel, A, A)
    K = K + jitter * np.diag(np.diag(K))
    return K, np.linalg.cholesky(K)


def _matern(kernel: Part) -> tuple[int, float, float]:
    """p, λ and σ² of Matérn (p − ½)."""
    p = {"Matern12": 1, "Matern32": 2, "Matern52": 3}[kernel.kind]
    return p, (2 * p - 1) ** 0.5 / float(np.squeeze(kernel["lengthscale"])), kernel["variance"]


def _covariances(A: Waves, kernel: Part, x: Array, orders: Array) -> Array:
    """Cov[u, f⁽ᵒʳᵈᵉʳ⁾(x)] [M, n]: a wave φ inside the interval.

    Beyond an end it is the solution of (λ + d/ds)ᵖ g = 0 that continues φ, at the distance s: the process is Markov of
    order p.
    """
    p, rate, _ = _matern(kernel)
    F = np.eye(p, k=1)  # of the state g, g', …
    F[-1] = [-comb(p, k) * rate ** (p - k) for k in range(p)]
    out = A.values(x, orders)
    for i in np.flatnonzero((x < A.a) | (x > A.b)):
        end, side = (A.a, -1.0) if x[i] < A.a else (A.b, 1.0)
        state = A.values(np.full(p, end), np.arange(p)).T * side ** np.arange(p)[:, None]
        out[:, i] = (expm(abs(x[i] - end) * F) @ state)[orders[i]] * side ** orders[i]
    return out


def _start(kernel: Part) -> Array:
    """The inverse covariance [p, p] of f and its first p − 1 derivatives at a point, from the spectrum."""
    p, rate, variance = _matern(kernel)
    spectrum = {  # the even moments of the spectral density: variances of f, f' and f''
        1: [1.0],
        2: [1.0, rate**2],
        3: [1.0, rate**2 / 3, rate**4],
    }[p]
    C = np.zeros((p, p))
    for i in range(p):
        for j in range(p):
            if (i + j) % 2 == 0:
                C[i, j] = (-1) ** ((i - j) // 2) * spectrum[(i + j) // 2]
    return np.linalg.inv(variance * C)


def _energy(kernel: Part) -> float:
    """c in ⟨g, h⟩ = c ∫ (λ + d)ᵖg (λ + d)ᵖh + …: one over the intensity of the white noise that drives f."""
    p, rate, variance = _matern(kernel)
    return {1: 1 / (2 * rate), 2: 1 / (4 * rate**3), 3: 3 / (16 * rate**5)}[p] / variance


def _operated(kernel: Part, derivatives: list[Array]) -> Array:
    """(λ + d)ᵖ of functions given by their derivatives."""
    p, rate, _ = _matern(kernel)
    binomial = [1, p, p * (p - 1) // 2, 1][: p + 1]
    binomial[p] = 1
    return np.sum([binomial[j] * rate ** (p - j) * derivatives[j] for j in range(p + 1)], axis=0)


def _rule(a: float, b: float, nodes: int, panels: int = 1) -> tuple[Array, Array]:
    t, w = np.polynomial.legendre.leggauss(nodes)
    edges = np.linspace(a, b, panels + 1)
    half = 0.5 * np.diff(edges)
    x = edges[:-1, None] + half[:, None] * (t[None] + 1)
    return x.ravel(), (half[:, None] * w[None]).ravel()


def _waves_gram(kernel: Part, A: Waves) -> tuple[Array, Array]:
    """Inner products of the waves by quadrature, D + V Vᵀ, and the root D^½ (I + U X Uᵀ) of the library."""
    p = _matern(kernel)[0]
    x, w = _rule(A.a, A.b, 20, 2 * A.num + 4)
    derivatives = [A.values(x, np.full(len(x), j)) for j in range(p + 1)]
    high = _operated(kernel, derivatives)
    D = _energy(kernel) * (high * w) @ high.T
    B = _start(kernel)
    at_a = np.concatenate([A.values(np.array([A.a]), np.array([j])) for j in range(p)], axis=1)
    assert np.abs(D - np.diag(np.diag(D))).max() < 1e-9 * np.abs(D).max()
    # The library scales derivatives by powers of λ before it takes the root of B; the product V Vᵀ does not change.
    powers = _matern(kernel)[1] ** np.arange(p)
    V = at_a / powers @ np.linalg.cholesky(B * np.outer(powers, powers))
    U = V / np.sqrt(np.diag(D))[:, None]
    C = np.linalg.cholesky(U.T @ U)
    T = np.linalg.cholesky(np.eye(p) + C.T @ C)
    X = np.linalg.inv(C).T @ (T - np.eye(p)) @ np.linalg.inv(C)
    return D + V @ V.T, np.sqrt(np.diag(D))[:, None] * (np.eye(len(D)) + U @ X @ U.T)


def apply(kernel: Part, A: Any, mean: Mean) -> Array:
    """The functionals A of a function that is at most linear where A holds waves, and constant where A is a tensor."""
    if isinstance(A, Joined):
        return np.concatenate([apply(kernel, part, mean) for part in A.parts])
    if isinstance(A, Atoms):
        at = mean(_coordinates(A, 0))
        n = len(A.points)
        value, slope = np.broadcast_to(at.v, (n, 1))[:, 0], np.broadcast_to(at.a, (n, 1))[:, 0]
        return A.weights @ np.where(A.columns >= 0, slope, value)
    if isinstance(A, Waves):
        p = _matern(kernel)[0]
        x, w = _rule(A.a, A.b, 20, 2 * A.num + 4)
        at = mean([Jet(np.append(x, A.a), a=1.0)])
        value, slope = np.broadcast_to(at.v, x.size + 1), np.broadcast_to(at.a, x.size + 1)
        derivatives = [value, slope, 0 * value, 0 * value][: max(p, 1) + 1]
        waves = [A.values(x, np.full(len(x), j)) for j in range(p + 1)]
        high = _operated(kernel, [d[:-1] for d in derivatives])
        at_a = np.concatenate([A.values(np.array([A.a]), np.array([j])) for j in range(p)], axis=1)
        edge = at_a @ _start(kernel) @ np.array([d[-1] for d in derivatives[:p]])
        return _energy(kernel) * (_operated(kernel, waves) * w) @ high + edge
    if isinstance(A, Tensor):
        one = [
            apply(_inner(own), part, lambda x: x[0] * 0.0 + 1.0) for part, own in zip(A.parts, kernel.args, strict=True)
        ]
        width = 1 + max(d for own in kernel.args for d in own["dims"])
        return np.squeeze(mean([Jet(np.zeros(1))] * width).v) * reduce(np.kron, one)
    out = []
    for i, (part, own) in enumerate(zip(A.parts, kernel.args, strict=True)):
        width = 1 + max((d for term in kernel.args if term.kind == "ActiveDims" for d in term["dims"]), default=0)

        def first(x: list[Jet], own=own, width=width) -> Jet:  # other columns are 0
            if own.kind != "ActiveDims":
                return mean(x)
            place = {d: x_d for d, x_d in zip(own["dims"], x, strict=True)}
            return mean([place.get(d, x[0] * 0.0) for d in range(width)])

        u = apply(_inner(own), part, first if i == 0 else lambda x: x[0] * 0.0)
        out.append(u)
    return np.concatenate(out)


def _eigenfunctions(part: Part, lengthscale: float) -> Atoms:
    """∫ f v_m ρ for the eigenfunctions v_m of the squared exponential under ρ, a Gaussian."""
    (centre,), (std,) = part["mean"], part["std"]
    points, weights = _gaussian(np.array([centre]), np.array([std]), 60)
    a, b = 1 / (4 * std**2), 1 / (2 * lengthscale**2)
    c = np.sqrt(a**2 + 2 * a * b)
    z = points[:, 0] - centre
    v = [
        (c / a) ** 0.25 * np.exp(-(c - a) * z**2) * eval_hermite(m, np.sqrt(2 * c) * z) / np.sqrt(2.0**m * factorial(m))
        for m in range(part["num"])
    ]
    return Uncorrelated(points, np.full(len(points), -1), np.stack(v) * weights)


def _waves_in_window(part: Part) -> Atoms:
    """∫ f N(x | c, diag s²) φ_m(x) dx, for 1, cosines and sines of ωᵀ(x − c)."""
    centre, frequencies = np.asarray(part["centre"], float), np.asarray(part["frequencies"], float)
    points, weights = _gaussian(centre, np.asarray(part["widths"], float), 40)
    angles = frequencies @ (points - centre).T
    phi = np.concatenate([np.ones((1, len(points))), np.cos(angles), np.sin(angles)])
    return Atoms(points, np.full(len(points), -1), phi * weights)


def features_of(part: Part, kernel: Part) -> Any:
    """The functionals that features of a process with some kernel stand for."""
    if part.kind == "EigenMercer":
        return _eigenfunctions(part, float(np.squeeze(kernel["lengthscale"])))
    if part.kind == "GaussianFourier":
        return _waves_in_window(part)
    if part.kind == "InducingPoints":
        Z = np.asarray(part["Z"], float)
        return Atoms(Z, np.full(len(Z), -1), np.eye(len(Z)))
    if part.kind == "InducingDerivatives":
        Z, dims = np.asarray(part["Z"], float), part.get("dims")
        if dims is None:
            columns, Z = np.tile(np.arange(Z.shape[1]), len(Z)), np.repeat(Z, Z.shape[1], axis=0)
        else:
            columns = np.broadcast_to(dims, (len(Z),))
        return Atoms(Z, np.asarray(columns), np.eye(len(Z)))
    if part.kind == "RegionAverage":
        boxes = zip(np.asarray(part["lower"], float), np.asarray(part["upper"], float), strict=True)
        return _average([_box(a, b, 24) for a, b in boxes])
    if part.kind == "plain_fourier":
        a, b, num = part["a"], part["b"], part["num"]
        x, w = _rule(a, b, 16, 5)
        return Atoms(x[:, None], np.full(len(x), -1), Waves(a, b, num).values(x, np.zeros(len(x), int)) * w)
    if part.kind == "Multiscale":
        Z, s = np.asarray(part["Z"], float), np.asarray(part["widths"], float)
        return _average([_gaussian(z, width, 32) for z, width in zip(Z, s, strict=True)])
    if part.kind == "Fourier":
        return Waves(part["a"], part["b"], part["num"])
    own = kernel.args if part.kind in ("Product", "Additive") else [kernel] * len(part["parts"])
    parts = [features_of(p, k) for p, k in zip(part["parts"], own, strict=True)]
    return {"Union": Joined, "Product": Tensor, "Additive": Blocks}[part.kind](parts)


def _tensor_rule(rules: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    points = np.stack([g.ravel() for g in np.meshgrid(*[x for x, _ in rules], indexing="ij")], axis=1)
    return points, reduce(np.multiply.outer, [w for _, w in rules]).ravel()


def _box(lower: Array, upper: Array, nodes: int) -> tuple[Array, Array]:
    rules = [_rule(a, b, nodes) for a, b in zip(lower, upper, strict=True)]
    return _tensor_rule([(x, w / w.sum()) for x, w in rules])


def _gaussian(centre: Array, width: Array, nodes: int) -> tuple[Array, Array]:
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    return _tensor_rule([(c + s * z, w / w.sum()) for c, s in zip(centre, width, strict=True)])


def _average(rules: list[tuple[Array, Array]]) -> Atoms:
    points = np.concatenate([x for x, _ in rules])
    return Atoms(points, np.full(len(points), -1), block_diag(*[w for _, w in rules]))


# Priors: outputs as functionals of the latents.


class Prior:
    """L latents with kernels and means, and P outputs that are functionals of them.

    `rows(X, columns, outputs)` describes, for each i, output p_i at X_i, or its derivative along columns_i: atoms of
    each latent, and the means of the rows.
    """

    def __init__(self, kernels: list[Part], means: list[Mean], num_outputs: int, rows: Callable):
        self.kernels, self.means, self.num_outputs, self.rows = kernels, means, num_outputs, rows

    def outputs(self, X: Array) -> tuple[list[Atoms], Array]:
        """All outputs at X, datum by datum."""
        n, P = len(X), self.num_outputs
        return self.rows(np.repeat(X, P, axis=0), np.full(n * P, -1), np.tile(np.arange(P), n))


def _mean_rows(mean: Any, X: Array, columns: Array, outputs: Array) -> Array:
    values = mean_of(mean, _coordinates(Atoms(X, columns, np.eye(0)), 0))
    table = []
    for value in values:
        v, a = (np.broadcast_to(t, (len(X), 1))[:, 0] for t in (value.v, value.a))
        table.append(np.where(columns >= 0, a, v))
    return np.stack(table)[outputs if len(table) > 1 else np.zeros(len(X), int), np.arange(len(X))]


def _mixture(W: Array, kernels: list[Part], means: list[Mean], mean: Any) -> Prior:
    def rows(X: Array, columns: Array, outputs: Array) -> tuple[list[Atoms], Array]:
        atoms = [Atoms(X, columns, np.diag(W[outputs, l])) for l in range(W.shape[1])]
        own = [apply(kernels[l], atoms[l], means[l]) for l in range(W.shape[1])]
        return atoms, sum(own) + _mean_rows(mean, X, columns, outputs)

    return Prior(kernels, means, len(W), rows)


def _side_by_side(W: Array, priors: list[Prior], mean: Any) -> Prior:
    """W h for the outputs h of independent priors."""
    places = np.cumsum([0, *[prior.num_outputs for prior in priors]])

    def rows(X: Array, columns: Array, outputs: Array) -> tuple[list[Atoms], Array]:
        atoms, total = [], _mean_rows(mean, X, columns, outputs)
        for prior, first in zip(priors, places, strict=False):
            each = [prior.rows(X, columns, np.full(len(X), q)) for q in range(prior.num_outputs)]
            weights = [W[outputs, first + q] for q in range(prior.num_outputs)]
            total = total + sum(w * own for w, (_, own) in zip(weights, each, strict=True))
            for l in range(len(prior.kernels)):
                a = [own[l] for own, _ in each]
                mixed = [w[:, None] * b.weights for w, b in zip(weights, a, strict=True)]
                points, moves = (np.concatenate([getattr(b, name) for b in a]) for name in ("points", "columns"))
                atoms.append(Atoms(points, moves, np.concatenate(mixed, axis=1)))
        return atoms, total

    kernels, means = ([x for prior in priors for x in getattr(prior, name)] for name in ("kernels", "means"))
    return Prior(kernels, means, len(W), rows)


def _convolution(part: Part, kernels: list[Part], means: list[Mean]) -> Prior:
    width, amplitude = (np.asarray(part["smoothing"][name], float) for name in ("width", "amplitude"))

    def rows(X: Array, columns: Array, outputs: Array) -> tuple[list[Atoms], Array]:
        mean = _mean_rows(part.get("mean"), X, columns, outputs)
        atoms = []
        for l in range(width.shape[1]):
            rules = [_gaussian(x, np.full(len(x), width[p, l]), 40) for x, p in zip(X, outputs, strict=True)]
            a = _average(rules)
            a = Atoms(a.points, np.repeat(columns, len(rules[0][1])), amplitude[outputs, l][:, None] * a.weights)
            atoms.append(a)
            mean = mean + apply(kernels[l], a, means[l])
        return atoms, mean

    return Prior(kernels, means, len(width), rows)


def _latents(value: Any, num: int) -> tuple[list[Part], list[Mean]]:
    items = value if isinstance(value, list) else [value] * num
    gps = [(g["kernel"], g.get("mean")) if g.kind == "GP" else (g, None) for g in items]
    return [k for k, _ in gps], [lambda x, m=m: mean_of(m, x)[0] for _, m in gps]


def _plus_column(own: Mean, common: Any, output: int) -> Mean:
    """The mean of a latent that is an output: its own, and its column of the mean of all outputs."""

    def mean(x: list[Jet]) -> Jet:
        values = mean_of(common, x)
        return own(x) + values[output if len(values) > 1 else 0]

    return mean


def prior_of(part: Part) -> Prior:
    """The reference of a prior."""
    if part.kind == "GP":
        return _mixture(np.eye(1), *_latents(part, 1), None)
    if part.kind == "Independent":
        num = len(part["latents"]) if isinstance(part["latents"], list) else part["num"]
        prior = _mixture(np.eye(num), *_latents(part["latents"], num), part.get("mean"))
        prior.means = [_plus_column(m, part.get("mean"), p) for p, m in enumerate(prior.means)]
        return prior
    if part.kind == "Stack":
        priors = [prior_of(p) for p in part["priors"]]
        return _side_by_side(np.eye(sum(p.num_outputs for p in priors)), priors, None)
    if part.kind == "LMC":
        W = np.asarray(part["W"], float)
        if isinstance(part["latents"], list) and any(p.kind == "LMC" for p in part["latents"]):
            return _side_by_side(W, [prior_of(p) for p in part["latents"]], part.get("mean"))
        return _mixture(W, *_latents(part["latents"], W.shape[1]), part.get("mean"))
    if part.kind == "IntrinsicCoregionalisation":
        W = np.concatenate([np.asarray(part["W"], float), np.diag(np.sqrt(part["kappa"]))], axis=1)
        return _mixture(W, *_latents(part["latents"], W.shape[1]), part.get("mean"))
    if part.kind == "ConvolutionProcess":
        return _convolution(part, *_latents(part["latents"], len(part["smoothing"]["width"][0])))
    if part.kind == "MatrixValued":
        return _matrix_valued(part)
    inner = prior_of(part["prior"] if part.options else part.args[0])
    if part.kind == "as_input":
        return Prior(
            inner.kernels, inner.means, 1, lambda X, columns, _: inner.rows(X[:, :-1], columns, X[:, -1].astype(int))
        )
    directions = ([-1] if part.get("values") else []) + list(range(part["dim"]))

    def derivatives(X: Array, columns: Array, outputs: Array) -> tuple[list[Atoms], Array]:
        assert (columns < 0).all()
        return inner.rows(X, np.asarray(directions)[outputs % len(directions)], outputs // len(directions))

    return Prior(inner.kernels, inner.means, inner.num_outputs * len(directions), derivatives)


def _matrix_valued(part: Part) -> Prior:
    def rows(X: Array, columns: Array, outputs: Array) -> tuple[list[Atoms], Array]:
        points = np.concatenate([X, outputs[:, None]], axis=1)
        return [Atoms(points, columns, np.eye(len(X)))], _mean_rows(part.get("mean"), X, columns, outputs)

    def mean(x: list[Jet]) -> Jet:
        values = mean_of(part.get("mean"), x[:-1])
        is_output = [np.round(x[-1].v) == p if len(values) > 1 else 1.0 for p in range(len(values))]
        return sum((value * chosen for value, chosen in zip(values, is_output, strict=True)), Jet(0.0))

    return Prior([part["kernel"]], [mean], part["num_outputs"], rows)
