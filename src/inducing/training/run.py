"""One start of a fit: what it is given, and how it ended. A fit may have several starts."""

from typing import NamedTuple

from jaxtyping import Array

from inducing.model import Model
from inducing.training.arguments import Arguments
from inducing.training.monitor import History, Watch
from inducing.training.plan import Plan
from inducing.training.problem import Problem

Seed = tuple[Array | None, Array]
"""The user's key, and the number of the start: `start_key` combines them."""


class Run(NamedTuple):
    """What one start is given.

    Attributes:
        given: the arguments of `fit`.
        plan: the method and its settings.
        steps: the number of steps or iterations.
        model: the model at which the run starts.
        problem: the model split into arrays that move and all the rest.
        seed: from which `start_key` makes the random key.
        watch: what is called between steps.
    """

    given: Arguments
    plan: Plan
    steps: int
    model: Model
    problem: Problem
    seed: Seed
    watch: Watch


class Outcome(NamedTuple):
    """How one start ended.

    Attributes:
        problem: the problem of the run.
        free: the best values of its free arrays.
        history: the objective at each step.
        bound: the score of `free`.
        reason: why the run ended.
        failures: the number of steps, or values in line searches, that were NaN or infinite.
        sampled: the number of steps that saw only a sample of the rows.
        sample: the number of rows in that sample.
    """

    problem: Problem
    free: list[Array]
    history: History
    bound: float
    reason: str
    failures: int
    sampled: int = 0
    sample: int = 0
