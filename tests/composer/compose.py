"""Random models: a seed gives the description of a model with data, which the library and the reference both build."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

import inducing as ig
from tests.composer.likelihoods import Binomial, Classes, ZeroInflated, distribution, latents_of, part_of
from tests.composer.parts import Function, Part, code
from tests.composer.processes import prior_of
from tests.composer.reference import Model

Array = np.ndarray
N, NEW = 6, 3  # rows of data, and new rows

CLOSED, QUADRATURE = 1e-8, 1e-5
NOISES = ("StudentT", "Laplace")
POSITIVES = ("LogNormal", "Gamma", "Exponential", "Weibull")
COUNTS = ("Poisson", "NegativeBinomial", "ZeroInflatedPoisson", "ZeroInflatedNegativeBinomial", "Binomial")
LABELS = ("Gaussian", *NOISES, *POSITIVES, "Beta", "Bernoulli", *COUNTS, "Ordinal")


@dataclass(frozen=True)
class Composition:
    """A model and its data; `tolerance` is how well both sides can compute q(f). Rows count `weight` times."""

    seed: int
    part: Part
    X: Array
    Y: Array
    weight: Array | None
    X_new: Array
    Y_new: Array
    tolerance: float
    importance: int

    @property
    def deep(self) -> bool:
        return len(self.part.args[0]) > 1

    def library(self) -> ig.Model:
        """The library's model, built from the code that a failure prints."""
        return eval(code(self.part), {"ig": ig, "jnp": jnp})

    def reference(self) -> Model:
        return Model(self.part, self.Y.shape[1])

    def recipe(self) -> str:
        """Python code that builds the model and its data."""
        weight = {} if self.weight is None else {"weight": self.weight}
        arrays = {"X": self.X, "y": self.Y, **weight, "X_new": self.X_new, "y_new": self.Y_new}
        lines = [f"{name} = jnp.array({_plain(a)})" for name, a in arrays.items()]
        start = f"# compose({self.seed})\nimport jax, jax.numpy as jnp, inducing as ig\nfrom jax.numpy import nan\n"
        return start + f'jax.config.update("jax_enable_x64", True)\nmodel = {code(self.part)}\n' + "\n".join(lines)


def _plain(a: Array) -> str:
    return repr(np.asarray(a).tolist())


class Dice:
    """Random choices, with numbers of three digits so that the printed model is the tested one."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.more = np.random.default_rng([seed, 1])  # for what is chosen beside the rest

    def pick(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def maybe(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def number(self, low: float, high: float) -> float:
        return round(float(self.rng.uniform(low, high)), 3)

    def numbers(self, low: float, high: float, *shape: int) -> Any:
        return np.round(self.rng.uniform(low, high, shape), 3).tolist()

    def spread(self, num: int, dim: int) -> list[list[float]]:
        """Points in [−1, 1]ᴰ that are not close to each other in the first column."""
        first = np.linspace(-0.95, 0.95, num) + self.rng.uniform(-0.15, 0.15, num) / num
        rest = self.rng.uniform(-1.0, 1.0, (num, dim - 1))
        return np.round(np.concatenate([first[:, None], rest], axis=1), 3).tolist()


# Kernels.


def _stationary(dice: Dice, dim: int, *kinds: str) -> Part:
    kind = dice.pick(*kinds)
    lengthscale = dice.numbers(0.4, 0.9, dim) if dice.maybe() else dice.number(0.4, 0.9)
    options = {"lengthscale": lengthscale, "variance": dice.number(0.6, 1.6)}
    if kind == "RationalQuadratic":
        options["alpha"] = dice.number(0.7, 2.0)
    return Part(f"ig.kernels.{kind}", options=options)


ROUGH, ONCE, TWICE = ("Matern12",), ("Matern32",), ("Matern52", "SquaredExponential", "RationalQuadratic")


def kernel(dice: Dice, dim: int, smoothness: int, depth: int = 2) -> Part:
    """A kernel of `dim` columns whose process has at least `smoothness` derivatives (0, 1 or 2)."""
    base = _stationary(dice, dim, *(ROUGH + ONCE + TWICE, ONCE + TWICE, TWICE)[smoothness])
    if depth == 0 or dice.maybe():
        return base

    def inner(dim: int = dim) -> Part:
        return kernel(dice, dim, smoothness, depth - 1)

    def weak() -> Part:
        """A kernel that need not be positive definite at distinct points."""
        kinds = ["Linear", "Polynomial", "Cosine", "Constant"] + ["ArcCosine"] * (smoothness == 0)
        kind, variance = dice.pick(*kinds), {"variance": dice.number(0.3, 0.9)}
        options = {
            "Polynomial": {"degree": 2, "variance": dice.number(0.3, 0.6), "offset": dice.number(0.3, 1.0)},
            "Cosine": {"lengthscale": dice.number(2.0, 4.0), **variance},
            "ArcCosine": {
                "order": dice.pick(0, 1, 2),
                "weight_variance": dice.number(0.5, 1.5),
                "bias_variance": dice.number(0.2, 1.0),
                **variance,
            },
        }.get(kind, variance)
        return Part(f"ig.kernels.{kind}", options=options)

    def columns() -> Part:
        dims = tuple(int(d) for d in dice.rng.permutation(dim)[: dice.pick(*range(1, dim + 1))])
        return Part("ig.kernels.ActiveDims", options={"kernel": inner(len(dims)), "dims": dims})

    def spectral() -> Part:
        options = {
            "weights": dice.numbers(0.4, 0.9, 2),
            "means": dice.numbers(-0.4, 0.4, 2, dim),
            "scales": dice.numbers(0.2, 0.4, 2, dim),
        }
        return Part("ig.kernels.SpectralMixture", options=options)

    def changing() -> Part:
        options = {
            "kernels": (inner(), inner()),
            "locations": [dice.number(-0.3, 0.3)],
            "steepness": dice.number(1.0, 4.0),
            "dim": int(dice.rng.integers(dim)),
        }
        return Part("ig.kernels.ChangePoint", options=options)

    forms: list[Callable[[], Part]] = [
        lambda: Part("+", (base, inner())),
        lambda: Part("+", (base, weak())),
        lambda: Part("+", (base, columns())),
        lambda: Part("*", (base, inner())),
        lambda: Part("*", (base, Part("+", (weak(), columns())))),
        lambda: Part("+", (base, Part("ig.kernels.Periodic", options={"base": base, "period": dice.number(1.5, 3.0)}))),
        changing,
        lambda: Part("+", (base, spectral())),
        lambda: Part("*", (base, spectral())),
        lambda: Part("ig.kernels.Warped", options={"kernel": inner(), "function": Function(dice.pick(*WARPS))}),
    ]
    return dice.pick(*forms)()


WARPS = ("jnp.tanh", "jnp.sin")  # increasing on the inputs


# Features, each with the kernels that suit them.


@dataclass(frozen=True)
class Family:
    """Features of one kind, kernels that suit them, and how well the library computes their covariances."""

    features: Callable[[], Part]
    kernel: Callable[[], Part]
    tolerance: float = CLOSED
    kronecker: tuple[int, ...] | None = None  # sizes of the factors of a Kronecker root
    mean: str = "any"  # or "linear", "constant": what μ_u can be computed for


def _features(name: str, **options: Any) -> Part:
    return Part(f"ig.features.{name}", options=options)


def _points(dice: Dice, dim: int, num: int) -> Part:
    return _features("InducingPoints", Z=dice.spread(num, dim))


def _regions(dice: Dice, dim: int, num: int, nodes: int) -> Part:
    lower = np.asarray(dice.spread(num, dim))
    upper = lower + dice.rng.uniform(0.2, 0.5, lower.shape)
    return _features("RegionAverage", lower=lower.tolist(), upper=np.round(upper, 3).tolist(), nodes=nodes)


def _multiscale(dice: Dice, dim: int, num: int) -> Part:
    Z, widths = dice.spread(num, dim), dice.numbers(0.1, 0.4, num, dim)
    if dim > 2:  # in which the reference's rule would have 32³ nodes for each feature
        return _features("InducingPoints", Z=Z)
    return _features("Multiscale", Z=Z, widths=widths)


def _fourier(dice: Dice, num: int) -> Part:
    return _features("Fourier", a=dice.number(-3.0, -2.0), b=dice.number(2.0, 3.0), num=num)


def _frequencies(dice: Dice, dim: int, num: int) -> Part:
    """Waves under a Gaussian window, with frequencies that are not close to each other in the first column."""
    frequencies = 3.0 * np.asarray(dice.spread(num, dim)) + 4.0 * np.eye(dim)[0]
    window = {"centre": dice.numbers(-0.3, 0.3, dim), "widths": dice.numbers(0.25, 0.4, dim)}
    return _features("GaussianFourier", frequencies=np.round(frequencies, 3).tolist(), **window)


def _eigen(dice: Dice, num: int) -> Part:
    return _features("EigenMercer", num=num, mean=dice.numbers(-0.2, 0.2, 1), std=dice.numbers(0.3, 0.5, 1))


def _slopes(dice: Dice, dim: int, num: int) -> Part:
    dims = dice.pick(None, int(dice.rng.integers(dim)), tuple(int(d) for d in dice.rng.integers(dim, size=num)))
    return _features("InducingDerivatives", Z=dice.spread(num, dim), **({} if dims is None else {"dims": dims}))


def family(dice: Dice, dim: int, smoothness: int) -> Family:
    """Features of `dim` columns and kernels whose processes have at least `smoothness` derivatives."""

    def some(smooth: int) -> Callable[[], Part]:
        return lambda: kernel(dice, dim, max(smooth, smoothness))

    def squared_exponential() -> Part:
        return _stationary(dice, dim, "SquaredExponential")

    def matern() -> Part:
        part = _stationary(dice, 1, *("Matern12", "Matern32", "Matern52")[smoothness:])
        return Part(part.name, options=part.options | {"lengthscale": dice.number(0.5, 1.2)})

    Z, num = dice.spread(dice.pick(3, 4), dim), dice.pick(3, 4)
    dims = int(dice.rng.integers(dim))
    both = (_features("InducingPoints", Z=Z), _features("InducingDerivatives", Z=Z, dims=dims))
    slopes = _slopes(dice, dim, 3)
    families = [
        Family(lambda: _points(dice, dim, num), some(0)),
        Family(lambda: _points(dice, dim, num), some(0)),
        Family(lambda: slopes, some(1)),
        Family(lambda: _features("Union", parts=both), some(1)),
        Family(lambda: _regions(dice, dim, num, 12), some(2), QUADRATURE),
        Family(lambda: _multiscale(dice, dim, num), squared_exponential),
        Family(lambda: _frequencies(dice, dim, 2), squared_exponential),
    ]
    if dim == 1:
        F = dice.pick(1, 2)
        waves = _features("plain_fourier", a=dice.number(-1.5, -1.2), b=dice.number(1.2, 1.5), num=1)
        families += [
            Family(lambda: waves, some(2), QUADRATURE),
            Family(lambda: _eigen(dice, num), squared_exponential),
            Family(lambda: _fourier(dice, F), matern, mean="linear"),
            Family(lambda: _features("Union", parts=(_fourier(dice, F), both[0])), matern, mean="linear"),
        ]
    else:
        families += [_product(dice, smoothness), _additive(dice, smoothness)]
    return dice.pick(*families)


def _columns(dice: Dice, smoothness: int) -> list[Family]:
    """A family for each of two columns."""
    return [_restricted(dice, smoothness) for _ in range(2)]


def _restricted(dice: Dice, smoothness: int) -> Family:
    """A family of one column without means that are not constant."""
    num, F = dice.pick(2, 3), 1

    def matern() -> Part:
        part = _stationary(dice, 1, *("Matern12", "Matern32", "Matern52")[smoothness:])
        return Part(part.name, options=part.options | {"lengthscale": dice.number(0.5, 1.2)})

    return dice.pick(
        Family(lambda: _points(dice, 1, num), lambda: kernel(dice, 1, smoothness, 1)),
        Family(lambda: _slopes(dice, 1, num), lambda: kernel(dice, 1, max(1, smoothness), 1)),
        Family(lambda: _fourier(dice, F), matern),
    )


def _active(part: Part, column: int) -> Part:
    return Part("ig.kernels.ActiveDims", options={"kernel": part, "dims": (column,)})


def _product(dice: Dice, smoothness: int) -> Family:
    each = _columns(dice, smoothness)
    sizes = tuple(size_of(f.features()) for f in each)
    return Family(
        lambda: _features("Product", parts=tuple(f.features() for f in each)),
        lambda: Part("*", tuple(_active(f.kernel(), d) for d, f in enumerate(each))),
        kronecker=sizes,
        mean="constant",
    )


def _additive(dice: Dice, smoothness: int) -> Family:
    each = _columns(dice, smoothness)
    return Family(
        lambda: _features("Additive", parts=tuple(f.features() for f in each)),
        lambda: Part("+", tuple(_active(_no_sum(f.kernel()), d) for d, f in enumerate(each))),
        mean="linear",
    )


def _no_sum(part: Part) -> Part:
    return part


def size_of(part: Part) -> int:
    """M, the number of features."""
    if part.kind in ("Fourier", "plain_fourier"):
        return 2 * part["num"] + 1
    if part.kind == "EigenMercer":
        return part["num"]
    if part.kind == "GaussianFourier":
        return 2 * len(part["frequencies"]) + 1
    if part.kind == "InducingDerivatives":
        return len(part["Z"]) * (len(part["Z"][0]) if part.get("dims") is None else 1)
    if part.kind == "RegionAverage":
        return len(part["lower"])
    if part.kind in ("InducingPoints", "Multiscale"):
        return len(part["Z"])
    sizes = [size_of(p) for p in part["parts"]]
    return int(np.prod(sizes)) if part.kind == "Product" else sum(sizes)


# Means.


def mean(dice: Dice, dim: int, outputs: int, allowed: str) -> Part | float | None:
    """A mean with one output, or as many as asked for."""
    several = outputs > 1 and dice.maybe()
    constant = Part(
        "ig.means.Constant", options={"value": dice.numbers(-1, 1, outputs) if several else dice.number(-1, 1)}
    )
    weights = dice.numbers(-1, 1, dim, outputs) if several else dice.numbers(-1, 1, dim)
    linear = Part("ig.means.Linear", options={"weights": weights, "bias": dice.number(-1, 1)})
    options: list[Any] = [None, dice.number(-1.0, 1.0), constant]
    if allowed != "constant":
        options += [linear, Part("+", (linear, Part("ig.means.Constant", options={"value": dice.number(-1, 1)})))]
    if allowed == "any":
        options.append(Part("*", (linear, Part("+", (linear, constant)))))
        if dim == outputs:
            sine = Part("ig.means.Function", options={"function": Function("jnp.sin")})
            options += [Part("ig.means.Identity"), sine, Part("+", (sine, linear))]
    return dice.pick(*options)


# Priors.


@dataclass(frozen=True)
class Drawn:
    """A prior with its features, the number of latents, and the inputs that it takes."""

    prior: Part
    features: Any
    tolerance: float
    columns: int  # of the inputs
    categories: int = 0  # of the last column, if it is the number of an output
    kronecker: tuple[int, ...] | None = None


def _with_mean(options: dict, mean: Any) -> dict:
    return options if mean is None else {**options, "mean": mean}


def prior(dice: Dice, dim: int, outputs: int | None = None, nested: bool = True) -> Drawn:
    """A prior, with the given number of outputs if there is one."""
    kinds = ["Independent", "LMC", "ICM", "MatrixValued", "Nested"] + ["GP"] * (3 if outputs in (None, 1) else 0)
    kinds += ["Convolution"] * (dim == 1)
    wrap = dice.pick("no", "no", "no", "derivative", "as_input", "both") if nested and outputs is None else "no"
    smoothness = 1 if wrap in ("derivative", "both") else 0
    kind = dice.pick(*kinds)
    P = outputs or (1 if kind == "GP" else dice.pick(1, 2, 2, 3))
    drawn = _matrix_valued(dice, dim, max(P, 2), smoothness) if kind == "MatrixValued" and outputs != 1 else None
    if drawn is None:
        drawn = _of_latents(dice, "GP" if P == 1 and kind == "MatrixValued" else kind, dim, P, smoothness)
    part, columns, categories = drawn.prior, dim, 0
    if wrap in ("derivative", "both"):
        options = {"prior": part, "dim": dim, "values": dice.maybe()}
        part = Part("ig.priors.Derivative", options=options)
    if wrap in ("as_input", "both"):
        categories, columns = prior_of(part).num_outputs, dim + 1
        part = Part("ig.priors.as_input", (part,))
    return Drawn(part, drawn.features, drawn.tolerance, columns, categories, drawn.kronecker)


def _of_latents(dice: Dice, kind: str, dim: int, P: int, smoothness: int) -> Drawn:
    """A prior whose latents are scalar GPs of the inputs."""
    L = {"GP": 1, "Independent": P, "ICM": P + 1, "Nested": 3}.get(kind, dice.pick(1, 2))
    one = Family(
        lambda: dice.pick(_points, _multiscale)(dice, dim, 4), lambda: _stationary(dice, dim, "SquaredExponential")
    )
    fam = one if kind == "Convolution" else family(dice, dim, smoothness)
    shared = L > 1 and kind != "Nested" and dice.maybe(0.3)

    def latent() -> Part:
        own = mean(dice, dim, 1, fam.mean)
        return Part("ig.GP", options=_with_mean({"kernel": fam.kernel()}, own))

    latents = latent() if shared else [latent() for _ in range(L)]
    common = _with_mean({}, mean(dice, dim, P, fam.mean))
    if kind == "GP":
        part = latents[0]
    elif kind == "Independent":
        part = Part("ig.priors.Independent", options={"latents": latents, **({"num": P} if shared else {}), **common})
    elif kind == "LMC":
        part = Part("ig.priors.LMC", options={"W": dice.numbers(-1, 1, P, L), "latents": latents, **common})
    elif kind == "Nested":
        inner = _with_mean({"W": dice.numbers(-1, 1, 2, 2), "latents": latents[:2]}, mean(dice, dim, 2, fam.mean))
        both = [Part("ig.priors.LMC", options=inner), latents[2]]
        if P == 3:
            part = Part("ig.priors.Stack", options={"priors": both})
        else:
            part = Part("ig.priors.LMC", options={"W": dice.numbers(-1, 1, P, 3), "latents": both, **common})
    elif kind == "ICM":
        weights = {"W": dice.numbers(-1, 1, P, 1), "kappa": dice.numbers(0.2, 0.8, P)}
        part = Part("ig.priors.IntrinsicCoregionalisation", options={**weights, "latents": latents, **common})
    else:
        smoothing = {"width": dice.numbers(0.1, 0.5, P, L), "amplitude": dice.numbers(-1, 1, P, L)}
        G = Part("ig.priors.GaussianSmoothing", options=smoothing)
        part = Part("ig.priors.ConvolutionProcess", options={"smoothing": G, "latents": latents, **common})
    each = [fam.features() for _ in range(L)]
    several = L > 1 and not shared and dice.maybe() and len({size_of(f) for f in each}) == 1
    # the library smooths means that are no polynomials by a rule of 32 nodes
    smoothed = kind == "Convolution" and "Function" in code(part)
    tolerance = QUADRATURE if smoothed else fam.tolerance
    return Drawn(part, each if several else each[0], tolerance, dim, kronecker=fam.kronecker)


def _matrix_valued(dice: Dice, dim: int, P: int, smoothness: int) -> Drawn:
    inputs = Part("ig.kernels.ActiveDims", options={"kernel": kernel(dice, dim, smoothness), "dims": tuple(range(dim))})
    W = {"W": dice.numbers(-1, 1, P, 1), "kappa": dice.numbers(0.3, 0.8, P)}
    coregion = Part("ig.kernels.Coregion", options=W)
    rho = round(float(dice.more.uniform(0.2, 0.8)), 3)
    categories = Part("ig.kernels.Categorical", options={"correlation": rho, "variance": 1.3})
    outputs = _active(categories if dice.more.random() < 0.4 else coregion, dim)
    Z = [[*z, float(p)] for z, p in zip(dice.spread(5, dim), dice.rng.integers(P, size=5), strict=True)]
    grid = _features("InducingPoints", Z=[[float(p)] for p in range(P)])
    if dice.maybe():
        features, sizes, allowed = _features("InducingPoints", Z=Z), None, "any"
    else:
        features, sizes, allowed = _features("Product", parts=(_points(dice, dim, 3), grid)), (3, P), "constant"
    options = {"kernel": Part("*", (inputs, outputs)), "num_outputs": P}
    common = mean(dice, dim, 1 if allowed == "constant" else P, allowed)
    return Drawn(Part("ig.priors.MatrixValued", options=_with_mean(options, common)), features, CLOSED, dim, 0, sizes)


# q(u), layers, likelihoods and models.


def _lower(dice: Dice, size: int, *batch: int) -> Array:
    R = np.tril(dice.rng.uniform(-0.3, 0.3, (*batch, size, size)), -1)
    return np.round(R + np.eye(size) * dice.rng.uniform(0.3, 1.0, (*batch, size, 1)), 3)


def sparse_gp(dice: Dice, drawn: Drawn) -> Part:
    """A sparse GP with a random q(u)."""
    L = len(prior_of(drawn.prior).kernels)
    M = size_of(drawn.features[0] if isinstance(drawn.features, list) else drawn.features)
    forms = ["full", "full", "diagonal"] + ["coupled"] * (L > 1 and L * M <= 24) + ["kronecker"] * bool(drawn.kronecker)
    form = dice.pick(*forms)
    coordinates = "w" if form == "kronecker" else dice.pick("u", "v", "w")
    if any(name in code(drawn.features) for name in ("GaussianFourier", "EigenMercer")):
        coordinates = "w"  # their variances are so small that a u of size 1 is very unlikely
    root: Any = {
        "full": lambda: _lower(dice, M, L).tolist(),
        "diagonal": lambda: dice.numbers(0.2, 1.0, L, M),
        "coupled": lambda: _lower(dice, L * M).tolist(),
        "kronecker": lambda: tuple(_lower(dice, m, L).tolist() for m in drawn.kronecker or ()),
    }[form]()
    if isinstance(root, tuple):
        root = tuple(Part("jnp.array", (factor,)) for factor in root)
    options = {"mean": dice.numbers(-1, 1, L, M), "root": root, "coordinates": coordinates}
    return Part("ig.SparseGP", (drawn.prior, drawn.features), {**options, "jitter": dice.pick(1e-9, 1e-6, 1e-3)})


def _likelihood_of_one(dice: Dice, kind: str, P: int) -> Part:
    def each(low: float, high: float) -> Any:
        return dice.numbers(low, high, P) if P > 1 and dice.maybe() else dice.number(low, high)

    def per_datum(low: float, high: float) -> Any:
        if dice.maybe(0.7):
            return each(low, high)
        values = dice.numbers(low, high, N, P) if dice.maybe() else dice.numbers(low, high, N)
        return Part("ig.likelihoods.PerDatum", options={"values": values, "new": dice.number(low, high)})

    share, count = {"link": dice.pick("probit", "logit")}, {"concentration": dice.number(0.6, 2.0)}
    options: dict[str, Any] = {
        "Gaussian": lambda: {"variance": per_datum(0.1, 0.6)},
        "StudentT": lambda: {"df": dice.number(3.0, 6.0), "scale": each(0.3, 0.8)},
        "Laplace": lambda: {"scale": each(0.3, 0.8)},
        "LogNormal": lambda: {"scale": each(0.3, 0.8)},
        "Gamma": lambda: {"shape": each(0.6, 2.0)},
        "Exponential": dict,
        "Weibull": lambda: {"shape": each(0.7, 2.0)},
        "Beta": lambda: {"scale": each(2.0, 6.0), **share},
        "Bernoulli": lambda: share,
        "Binomial": lambda: {"total_count": 4.0, **share},
        "Poisson": lambda: {"link": dice.pick("exp", "softplus"), "exposure": per_datum(0.5, 2.0)},
        "NegativeBinomial": lambda: count,
        "ZeroInflatedPoisson": lambda: {"zero_probability": each(0.1, 0.4)},
        "ZeroInflatedNegativeBinomial": lambda: {"zero_probability": each(0.1, 0.4), **count},
        "Ordinal": lambda: {"cutpoints": [-0.7, 0.6], "sigma": dice.number(0.4, 1.0)},
    }[kind]()
    return Part(f"ig.likelihoods.{kind}", options=options)


def likelihood(dice: Dice, latents: int) -> tuple[Part, int]:
    """A likelihood of that many latents, and its number of outputs."""
    kinds = ["Gaussian", "Gaussian", "one", "one", "one"] + ["PerOutput"] * (latents > 1)
    kinds += ["Heteroscedastic"] * (latents % 2 == 0) + ["Softmax"] * (latents in (2, 3))
    kind = dice.pick(*kinds)
    if kind == "PerOutput":
        each = [_likelihood_of_one(dice, dice.pick(*LABELS), 1) for _ in range(latents)]
        return Part("ig.likelihoods.PerOutput", (each,)), latents
    if kind == "Heteroscedastic":
        options = {"link": dice.pick("exp", "softplus")}
        return Part("ig.likelihoods.HeteroscedasticGaussian", options=options), latents // 2
    if kind == "Softmax":
        return Part("ig.likelihoods.Softmax", (latents,)), 1
    return _likelihood_of_one(dice, "Gaussian" if kind == "Gaussian" else dice.pick(*LABELS), latents), latents


def _inner_layer(dice: Dice, dim: int) -> tuple[Part, int]:
    """A layer for `dim` inputs, and the number of its outputs."""
    kind = dice.pick("gp", "gp", "gp", "latent", "dense", "tanh", "skip")
    if kind == "latent":
        d = dice.pick(1, 2)
        encoder = {"mean": dice.numbers(-1, 1, N, d), "scale": dice.numbers(0.3, 0.9, N, d)}
        options = {"encoder": Part("ig.layers.PerDatumEncoder", options=encoder)} if dice.maybe(0.8) else {}
        return Part("ig.LatentVariable", (d,), options), dim + d
    if kind == "tanh":
        return Part("ig.Deterministic", (Function("jnp.tanh"),)), dim
    P = dice.pick(1, 2)
    if kind == "dense":
        sizes = {"mean": dice.numbers(-1, 1, dim + 1, P), "scale": dice.numbers(0.1, 0.5, dim + 1, P)}
        options = {**sizes, "prior_scale": dice.numbers(0.5, 1.5, dim + 1, P)}
        return Part("ig.BayesianDense", (dim, P), options), P
    gp = sparse_gp(dice, prior(dice, dim, P))
    return (Part("ig.Skip", (gp,)), dim + P) if kind == "skip" else (gp, P)


def _labels(dice: Dice, part: Part, P: int, rows: int, new: bool) -> Array:
    """Labels that the likelihood may give."""
    Y = np.zeros((rows, P))
    for n in range(rows):
        for p in range(P):
            one, own = part_of(part, p)
            f = [dice.rng.normal(size=1) for _ in latents_of(one, p, P)]
            dist = distribution(one, f, own, None if new else n)
            Y[n, p] = _draw(dice.rng, dist)
    return np.round(Y, 4)


def _draw(rng: np.random.Generator, dist: Any) -> float:
    if isinstance(dist, Classes):
        return float(rng.choice(dist.p.shape[-1], p=dist.p[0] / dist.p[0].sum()))
    if isinstance(dist, Binomial):
        return float(rng.binomial(dist.total, dist.p[0]))
    if isinstance(dist, ZeroInflated):
        return 0.0 if rng.random() < dist.zero else _draw(rng, dist.counts)
    y = float(np.squeeze(dist.rvs(random_state=rng)))
    inside = dist.dist.name not in ("beta", "lognorm", "gamma", "expon", "weibull_min")
    return y if inside else float(np.clip(y, 0.01, 0.99 if dist.dist.name == "beta" else None))


def compose(seed: int) -> Composition:
    """A random model with data."""
    dice = Dice(seed)
    depth = dice.pick(1, 1, 1, 1, 1, 2, 3)
    dim = width = dice.pick(1, 2)
    layers = []
    for _ in range(depth - 1):
        layer, width = _inner_layer(dice, width)
        layers.append(layer)
    if depth > 1 and width > 2:  # quickly too many features
        drawn = prior(dice, 1, nested=False)
        layers.append(
            Part(
                "ig.BayesianDense",
                (width, 1),
                {
                    "mean": dice.numbers(-1, 1, width + 1, 1),
                    "scale": dice.numbers(0.1, 0.5, width + 1, 1),
                    "prior_scale": dice.numbers(0.5, 1.5, width + 1, 1),
                },
            )
        )
    else:
        drawn = prior(dice, width, nested=depth == 1)
    layers.append(sparse_gp(dice, drawn))
    part, P = likelihood(dice, prior_of(drawn.prior).num_outputs)
    X, X_new = (_inputs(dice, rows, dim, drawn) for rows in (N, NEW))
    Y, Y_new = (_labels(dice, part, P, rows, new) for rows, new in ((N, False), (NEW, True)))
    if dice.maybe():
        Y[dice.rng.random(Y.shape) < 0.3] = np.nan
    weight = dice.more.integers(1, 4, size=N).astype(float) if dice.more.random() < 0.3 else None
    latent = any(layer.kind == "LatentVariable" for layer in layers)
    importance = dice.pick(1, 3) if latent and depth == 2 else 1
    return Composition(seed, Part("ig.Model", (layers, part)), X, Y, weight, X_new, Y_new, drawn.tolerance, importance)


def _inputs(dice: Dice, rows: int, dim: int, drawn: Drawn) -> Array:
    X = np.round(dice.rng.uniform(-1.0, 1.0, (rows, dim)), 3)
    if drawn.categories:
        X = np.concatenate([X, dice.rng.integers(drawn.categories, size=(rows, 1))], axis=1)
    return X
