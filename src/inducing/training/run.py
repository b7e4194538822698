"""The inputs of one start of a fit. A fit may have several starts."""

from typing import NamedTuple

from jaxtyping import Array

from inducing.bounds.passes import Pass
from inducing.model import Model
from inducing.training.arguments import Arguments
from inducing.training.checkpoint import Checkpoint
from inducing.training.monitor import Watch
from inducing.training.plan import Plan
from inducing.training.problem import Problem

Seed = tuple[Array | None, Array]
"""The user's key, and the number of the start: `start_key` combines them."""


class Run(NamedTuple):
    """The inputs of one start.

    Attributes:
        given: the arguments of `fit`.
        plan: the method and its settings.
        model: the model at which the run starts.
        problem: the model split into free arrays and all the rest.
        seed: the arguments of `start_key`, which makes the random key.
        watch: functions and limits that are used between steps.
        checkpoint: the record of the fit, if the user asked for one.
        passes: passes over the stream, for the collapsed bound of a stream.
    """

    given: Arguments
    plan: Plan
    model: Model
    problem: Problem
    seed: Seed
    watch: Watch
    checkpoint: Checkpoint | None
    passes: Pass | None = None
