"""What is timed: the cases, the arrays that all libraries share, and the operations that each case counts."""

import dataclasses
import math

import numpy as np

PEERS = ("gpflow", "gpflux", "gpytorch", "gpjax")
JITTER = {"float64": 1e-7, "float32": 1e-5}  # absolute, which is relative too: all kernel variances start at 1
TOLERANCE = {"float64": 1e-6, "float32": 1e-4}  # how far bounds at equal parameters may be apart, relative

# GPyTorch's log Φ is a rational approximation, up to 5e-5 off below −1; replacing it would only slow it down.
APPROXIMATE = {("gpytorch", "bernoulli"): 2e-4}


@dataclasses.dataclass(frozen=True)
class Case:
    """One piece of work. `kind` is what a worker's `build` understands; sizes are named as in the theory."""

    name: str
    group: str
    kind: str  # svgp, collapsed, predict, lmc, deep, latent
    peers: tuple[str, ...]
    target: float | None = None  # the ratio of the best peer's time to ours that we aim for
    N: int = 20_000
    D: int = 8
    M: int = 128
    batch: int = 1024
    dtype: str = "float64"
    likelihood: str = "gaussian"
    latents: int = 3
    outputs: int = 10
    layers: int = 2
    width: int = 5
    replicates: int = 10
    cached: bool = False  # predictions: what does not depend on the inputs is there already

    def sizes(self, scale: float) -> "Case":
        """The same case made smaller, for trying the scripts out."""
        if scale == 1.0:
            return self
        small = {
            "N": max(200, int(self.N * scale)),
            "M": max(8, int(self.M * scale)),
            "batch": max(32, int(self.batch * scale)),
        }
        return dataclasses.replace(self, **small)


_SHALLOW = ("gpflow", "gpytorch", "gpjax")
_DEEP = ("gpflux", "gpytorch")


def tolerance(case: Case, library: str) -> float:
    """How far a library's bound may be from ours, relative."""
    return max(TOLERANCE[case.dtype], APPROXIMATE.get((library, case.likelihood), 0.0))


def _svgp() -> list[Case]:
    targets = {("gaussian", 128): 3.0, ("gaussian", 512): 1.6, ("bernoulli", 128): 2.5}
    return [
        Case(
            f"svgp-{likelihood}-{M}-{dtype}",
            "svgp",
            "svgp",
            _SHALLOW,
            targets.get((likelihood, M)) if dtype == "float64" else None,
            M=M,
            dtype=dtype,
            likelihood=likelihood,
        )
        for dtype in ("float64", "float32")
        for likelihood in ("gaussian", "bernoulli")
        for M in (128, 512, 1024)
    ]


CASES = [
    *_svgp(),
    Case("collapsed-256", "collapsed", "collapsed", _SHALLOW, 4.0, M=256),
    Case("collapsed-256-million", "million", "collapsed", (), M=256, N=1_000_000),
    Case("collapsed-512-million", "million", "collapsed", (), M=512, N=1_000_000),
    Case("predict-512-million", "million", "predict", (), M=512, N=1_000_000),
    Case("predict-512", "predict", "predict", _SHALLOW, 3.0, M=512),
    Case("predict-512-cached", "predict", "predict", _SHALLOW, M=512, cached=True),
    Case("lmc-128", "lmc", "lmc", ("gpflow", "gpytorch"), 2.5),
    Case("deep-2", "deep", "deep", _DEEP, 2.5, layers=2),
    Case("deep-3", "deep", "deep", _DEEP, 2.5, layers=3),
    Case("latent-10", "latent", "latent", (), batch=256, replicates=10),
    # Growth curves, of ours alone: (group, the size that grows) is read by `speed.slopes`.
    *(Case(f"growth-N-{N}", "growth-N", "collapsed", (), N=N) for N in (5_000, 10_000, 20_000, 40_000, 80_000)),
    *(Case(f"growth-M-{M}", "growth-M", "svgp", (), M=M) for M in (64, 128, 256, 512, 1024)),
    *(Case(f"growth-layers-{n}", "growth-layers", "deep", (), layers=n) for n in (1, 2, 3, 4, 5)),
    *(
        Case(f"growth-replicates-{R}", "growth-replicates", "latent", (), batch=256, replicates=R)
        for R in (1, 2, 5, 10, 20, 50)
    ),
]
GROWTH = {"growth-N": "N", "growth-M": "M", "growth-layers": "layers", "growth-replicates": "replicates"}


def flops(case: Case) -> float:
    """Operations of the matrix products and factorisations of the algorithm (a product [a, b] @ [b, c] is 2abc).

    An SVGP step at M features and n points, where products with triangular matrices and those that give a symmetric
    one are done by k blocks of rows (1 for M < 256, else of at least 128 and at most 4), so that the share
    h = (1 + 1/k)/2 of them is done, and g = (1 + 1/k)(1 + 1/2k)/3 of RRᵀ:
        factorise Kuu and invert the factor                     2/3 M³
        A = L⁻¹Kuf, T = L⁻ᵀWA with W = I − RRᵀ                  1 + h products of 2M²n, g + h of 2M³
        reverse: G = A diag(c̄) Aᵀ                               h products of 2M²n
        reverse: GR, WG, L⁻ᵀ Φ L⁻¹                              3h + 1 products of 2M³
        Gram matrices and their two gradients                   3 products of 2DMn and of 2DM²
    Latents that share A do G by two blocks from M = 128 on.
    """
    N, M, D, B = case.N, case.M, case.D, case.batch

    def gram(n: float, width: int) -> float:
        return 6 * width * M * (n + M)

    def svgp(n: float, width: int, latents: int, kernels: int) -> float:
        """`latents` roots R; `kernels` factorisations, which latents may share."""
        k = _blocks(M)
        h, g = (1 + 1 / k) / 2, (1 + 1 / k) * (1 + 0.5 / k) / 3
        G = 0.75 if kernels < latents and k == 1 and M >= 128 else h
        shared = kernels * (2 * h * M * M * n + (2 / 3 + 2 * (h + 1)) * M**3 + gram(n, width))  # A and L⁻ᵀ Φ L⁻¹
        return shared + latents * (2 * (1 + G) * M * M * n + 2 * (g + 3 * h) * M**3)

    if case.kind == "svgp":
        return svgp(B, D, 1, 1)
    if case.kind == "lmc":
        return svgp(B, D, case.latents, case.latents) + 6 * B * case.latents * case.outputs
    if case.kind == "deep":
        widths = [D, *[case.width] * (case.layers - 1)]
        latents = [*[case.width] * (case.layers - 1), 1]
        return sum(svgp(B, d, n, 1) for d, n in zip(widths, latents, strict=True))
    if case.kind == "latent":
        return svgp(B * case.replicates, D + 1, 1, 1)
    if case.kind == "collapsed":
        # Ψ = Kuf Kfu, of which the share h is done, and its reverse 2Ψ̄Kuf; Kuf twice (the reverse pass recomputes it)
        # and its two gradients; two factorisations with inverses, whitening of Ψ, and their reverse products.
        h = (1 + 1 / _blocks(M)) / 2
        return 2 * (1 + h) * M * M * N + 8 * D * M * N + (4 / 3 + 4 + 16) * M**3
    if case.kind == "predict":
        # diag(Kfu C Kuf) by blocks of 128 rows of the symmetric C; C = L⁻ᵀ(I − RRᵀ)L⁻¹, and a check of its accuracy.
        return M * (M + 128) * N + 2 * D * M * N + (0 if case.cached else (2 / 3 + 8) * M**3)
    raise ValueError(f"no count of operations for the kind {case.kind!r}.")


def _blocks(M: int) -> int:
    return 1 if M < 256 else min(4, math.ceil(M / 128))


def arrays(case: Case) -> dict[str, np.ndarray]:
    """Data, parameters and minibatches that every library starts from."""
    rng = np.random.default_rng(0)
    N, D, M = case.N, case.D, case.M
    X = rng.normal(size=(N, D))
    f = np.sin(X[:, 0]) + 0.5 * X[:, 1] * np.cos(X[:, 2])
    out = {
        "X": X,
        "Z": X[rng.choice(N, M, replace=False)],
        "lengthscale": rng.uniform(1.5, 3.0, D),
        "variance": np.ones(()),
        "noise": np.full((), 0.2),
        "index": np.stack([rng.choice(N, min(case.batch, N), replace=False) for _ in range(8)]),
    }

    def q(latents: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
        root = np.tril(0.02 * rng.normal(size=(latents, M, M)) / np.sqrt(M)) + scale * np.eye(M)
        return 0.3 * rng.normal(size=(latents, M)), root

    noise = np.sqrt(0.2) * rng.normal(size=N)
    if case.kind == "lmc":
        L, P = case.latents, case.outputs
        out["W"] = rng.normal(size=(P, L)) / np.sqrt(L)
        out["lengthscale"] = rng.uniform(1.5, 3.0, (L, D))
        g = np.stack([f, np.sin(X[:, -1]), X[:, -2]], axis=1)[:, np.arange(L) % 3]
        out["y"] = g @ out["W"].T + np.sqrt(0.2) * rng.normal(size=(N, P))
        out["mean"], out["root"] = q(L, 0.5)
    elif case.kind == "deep":
        out["y"] = (f + noise)[:, None]
        out["project"] = np.linalg.qr(rng.normal(size=(D, D)))[0][:, : case.width]
        for i in range(case.layers):
            width = 1 if i == case.layers - 1 else case.width
            dim = D if i == 0 else case.width
            out[f"Z{i}"] = out["Z"] if i == 0 else rng.normal(size=(M, dim))
            out[f"lengthscale{i}"] = rng.uniform(1.5, 3.0, dim)
            out[f"mean{i}"], out[f"root{i}"] = q(width, 0.3)
    else:
        out["y"] = ((f + noise > 0).astype(float) if case.likelihood == "bernoulli" else f + noise)[:, None]
        out["mean"], out["root"] = q(1, 0.5)
        if case.kind == "latent":
            out["Z"] = np.concatenate([out["Z"], rng.normal(size=(M, 1))], axis=1)
            out["lengthscale"] = rng.uniform(1.5, 3.0, D + 1)
    return {k: v if k == "index" else np.asarray(v, case.dtype) for k, v in out.items()}
