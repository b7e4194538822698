"""The paper's comparison (section 4.7): four models of the black pixels of the letters "DGP".

An input has many labels, so p(y | x) has many modes. A GP can only cover them with a wide density, and a deep GP is no
better. With a latent variable, which represents the stroke that a pixel belongs to, the letters become readable.

    python -m inducing demo            two to five minutes on two cores
    python -m inducing demo --quick    90 seconds
    python -m inducing demo --full     up to an hour: the paper's quality
"""

import io
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from inducing.bounds.elbo import elbo
from inducing.cli.ending import write
from inducing.cli.options import add_running, seed
from inducing.data import Data
from inducing.features import InducingPoints
from inducing.kernels import SquaredExponential
from inducing.layers import Amortised, LatentVariable, SparseGP
from inducing.likelihoods import Gaussian
from inducing.means import Identity
from inducing.model import Model
from inducing.priors import GP, Independent
from inducing.report.densities import plot_density
from inducing.training.fit import FitResult, fit
from inducing.training.monitor import Progress

SHARES = {"GP": 0.1, "DGP": 0.15, "LV-GP": 0.25, "LV-DGP": 0.5}  # of the time, for each model


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    demo = commands.add_parser("demo", help="compare four models on the letters DGP: a table and a figure")
    demo.add_argument("--out", default="out", help="folder for the figure (default: out)")
    effort = demo.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_const", const="quick", dest="kind", help="90 seconds on two cores")
    effort.add_argument(
        "--full", action="store_const", const="full", dest="kind", help="up to an hour, the paper's quality"
    )
    demo.add_argument("--seed", type=seed, default=0, help="the seed of data split and training (default: 0)")
    add_running(demo)
    demo.set_defaults(kind="default", run=lambda o: run(o.kind, o.out, o.seed, progress=not o.quiet))


class Budget(NamedTuple):
    """The work of the demo: the number of steps of each model, and a limit in seconds for slow machines."""

    steps: dict[str, int]
    seconds: dict[str, float]
    features: int
    importance: int
    batch: int
    pixels: int


def budget(kind: str) -> Budget:
    """The budgets of `quick` (90 seconds on two cores), `default` (two to five minutes) and `full` (up to an hour).

    >>> budget("quick").features
    50
    """
    steps, seconds, *sizes = {
        "quick": ((400, 500, 3000, 2500), 60.0, 50, 5, 256, 120),
        "default": ((1000, 1500, 8000, 6000), 240.0, 80, 5, 512, 240),
        "full": ((2000, 4000, 20000, 20000), 3600.0, 100, 10, 512, 240),
    }[kind]
    limits = {name: share * seconds for name, share in SHARES.items()}
    return Budget(dict(zip(SHARES, steps, strict=True)), limits, *sizes)


def letters(text: str = "DGP", width: int = 330) -> Float[np.ndarray, "N 2"]:
    """The black pixels of a text, drawn with Matplotlib's own font, as points in [−3, 3]².

    >>> letters("I", width=20).shape[1]
    2
    """
    try:
        from matplotlib.font_manager import FontProperties
        from matplotlib.path import Path as Outline
        from matplotlib.textpath import TextPath
    except ImportError as error:
        raise ImportError("the demo needs Matplotlib: pip install 'inducing[plot]'") from error
    path = TextPath((0, 0), text, size=100, prop=FontProperties(family="DejaVu Sans", style="oblique"))
    box = path.get_extents()
    grid = np.meshgrid(np.linspace(box.x0, box.x1, width), np.linspace(box.y0, box.y1, width // 2), indexing="ij")
    points = np.stack(grid, axis=-1).reshape(-1, 2)
    inside = np.zeros(len(points), bool)
    for polygon in path.to_polygons():
        inside ^= Outline(polygon).contains_points(points)  # holes are polygons too
    return 6.0 * (points[inside] - [box.x0, box.y0]) / [box.width, box.height] - 3.0


def models(num: int, key: Array) -> dict[str, Model]:
    """GP, DGP, LV-GP and LV-DGP for one input and one output in [−3, 3], with `num` inducing points per layer.

    >>> list(models(10, jax.random.key(0)))
    ['GP', 'DGP', 'LV-GP', 'LV-DGP']
    """
    key_points, key_lv, key_lv_deep = jax.random.split(key, 3)
    line = jnp.linspace(-3.0, 3.0, num)[:, None]
    plane = jnp.stack([line[:, 0], jax.random.permutation(key_points, jnp.linspace(-2.5, 2.5, num))], axis=1)

    def last(Z: Array) -> SparseGP:
        kernel = SquaredExponential(lengthscale=jnp.full(Z.shape[1], 0.7))
        return SparseGP(GP(kernel), InducingPoints(Z))

    def inner(Z: Array) -> SparseGP:
        kernel = SquaredExponential(lengthscale=jnp.full(Z.shape[1], 0.7), variance=jnp.asarray(0.5))
        prior = Independent(GP(kernel), num=Z.shape[1], mean=Identity())
        return SparseGP(prior, InducingPoints(Z), root=1e-3 * jnp.stack([jnp.eye(num)] * Z.shape[1]))

    def latent(key: Array) -> LatentVariable:
        return LatentVariable(1, Amortised.mlp(key, dim=1, x=1, y=1, hidden=(20, 2)))

    noise, spread = (
        Gaussian(jnp.asarray(0.05)),
        Gaussian(jnp.asarray(2.0)),
    )  # without latent variables, the whole spread is noise
    return {
        "GP": Model(last(line), spread),
        "DGP": Model([inner(line), last(line)], spread),
        "LV-GP": Model([latent(key_lv), last(plane)], noise),
        "LV-DGP": Model([latent(key_lv_deep), inner(plane), last(plane)], noise),
    }


class Row(NamedTuple):
    """One line of the table."""

    name: str
    bound: float
    log_likelihood: float
    standard_error: float
    seconds: float
    steps: int


def _limit(seconds: float) -> Callable[[Progress], bool]:
    """Stop a fit after a number of seconds, not counting its compilation."""
    start: list[float] = []

    def late(now: Progress) -> bool:
        start.append(now.seconds)
        return now.seconds - start[0] > seconds

    return late


def train(name: str, model: Model, data: Data, work: Budget, key: Array, progress: bool) -> FitResult:
    """Fit one of the models, by natural gradients for the last layer and Adam for the rest."""
    steps = work.steps[name]
    schedule = optax.cosine_decay_schedule(0.01, steps, alpha=0.05)
    return fit(
        model,
        data,
        objective=partial(elbo, importance=work.importance) if name.startswith("LV") else elbo,
        method="natgrad",
        steps=steps,
        batch_size=work.batch,
        optimiser=optax.adam(schedule),
        callback=_limit(work.seconds[name]),
        progress=progress and name,
        key=key,
    )


def attainable(points: Float[np.ndarray, "N 2"]) -> float:
    """The mean log-likelihood of pixels under their true p(y | x): uniform over the ink of their column.

    >>> square = np.stack(np.meshgrid(np.arange(3.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    >>> round(attainable(square), 4)                                    # −log 4: pixels of height 1
    -1.3863
    """
    counts = np.unique(points[:, 0].round(6), return_counts=True)[1]
    height = np.diff(np.unique(points[:, 1].round(6))).min()
    return float(-np.sum(counts * np.log(counts * height)) / counts.sum())


def run(kind: str = "default", out: str | Path = "out", seed: int = 0, progress: bool = True) -> list[Row]:
    """Fit the four models, print a table and draw the figure `out/demo.png`."""
    work = budget(kind)
    path = Path(out) / "demo.png"
    path.parent.mkdir(parents=True, exist_ok=True)  # before the fits, so that an error appears at once
    points = letters()
    rng = np.random.default_rng(seed)
    points = points[rng.permutation(len(points))]
    cut = len(points) // 10
    held_out, seen = points[:cut], points[cut:]
    data = Data(seen[:, 0], seen[:, 1])
    key = jax.random.key(seed)
    print(f"{len(seen)} pixels of the letters DGP, {cut} held out; {work.features} inducing points per layer.")
    rows, fitted = [], {}
    x, y = np.linspace(-3.2, 3.2, work.pixels), np.linspace(-3.6, 3.6, work.pixels)
    for name, model in models(work.features, key).items():
        began = time.perf_counter()
        result = train(name, model, data, work, key, progress)
        seconds = time.perf_counter() - began
        score = result.model.predict(held_out[:, 0], key=key).log_prob(held_out[:, 1])
        error = float(score.std()) / np.sqrt(cut)
        rows.append(Row(name, result.bound, float(score.mean()), error, seconds, len(result.history.step)))
        fitted[name] = result.model
    print_table(rows, attainable(points))
    if late := [f"{r.name} ({r.steps} of {work.steps[r.name]} steps)" for r in rows if r.steps < work.steps[r.name]]:
        print(f"This machine was too slow or too busy for all steps within the time limit: {', '.join(late)}.")
    draw(seen, fitted, x, y, path)
    print(f"The figure in {path} shows the data, the four predictive densities, and samples of them.")
    return rows


def print_table(rows: list[Row], best: float) -> None:
    """The results, one line per model, the log-likelihood of the true densities, and an explanation."""
    print(f"\n{'model':<8}{'bound':>12}{'held-out log-likelihood':>27}{'seconds':>10}{'steps':>9}")
    for r in rows:
        score = f"{r.log_likelihood:.3f} ± {r.standard_error:.3f}"
        print(f"{r.name:<8}{r.bound:>12.1f}{score:>27}{r.seconds:>10.1f}{r.steps:>9}")
    print(f"{'truth':<8}{'':>12}{f'{best:.3f}':>27}")
    print(
        "\nThe log-likelihood of a pixel's height y given x: higher is better. D means deep, and LV a latent variable,"
    )
    print("with which p(y | x) can have several modes, one for each stroke at x.")
    shallow, deep = rows[:2]
    if abs(deep.log_likelihood - shallow.log_likelihood) < deep.standard_error:
        print(
            f"{deep.name} and {shallow.name} differ by less than a standard error: with so many pixels a deep GP is a "
            "known function of x, so its p(y | x) has one mode too."
        )


def draw(points: np.ndarray, fitted: dict[str, Model], x: np.ndarray, y: np.ndarray, path: Path) -> None:
    """Plot the data and the predictive density of each model, with samples of it below."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(2, 5, figsize=(17, 7.0), sharex=True, sharey=True, constrained_layout=True)
    axes[0, 0].plot(points[:, 0], points[:, 1], "k,")
    axes[0, 0].set(title="Data", ylabel="y", xlabel="x")
    axes[1, 0].axis("off")
    for (above, below), (name, model) in zip(axes.T[1:], fitted.items(), strict=True):
        plot_density(model, X=x, Y=y, ax=above).set(title=name, ylabel="")
        plot_density(model, X=x, Y=y, draws=20, ax=below).set(title=f"{name}, samples", ylabel="")
    picture = io.BytesIO()
    fig.savefig(picture, dpi=150)
    write(path, picture.getvalue())
    plt.close(fig)
