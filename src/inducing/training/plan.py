"""The choice of the training method and its settings."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from inducing._xla import num_devices
from inducing.bounds.conjugate import conjugate_layer
from inducing.bounds.objective import AbstractObjective, Optimum, Target, unwrapped
from inducing.layers import qu
from inducing.layers.sparse_gp import SparseGP
from inducing.model import Model
from inducing.parameters import Partition
from inducing.priors.base import weights
from inducing.training.arguments import Arguments
from inducing.training.problem import free_positions

LBFGS = ("collapsed", "lbfgs")
METHODS = ("auto", "adam", "natgrad", "natgrad-all", "collapsed", "lbfgs")
BATCH = 1024  # the default size of minibatches; up to twice as many rows are used without minibatches
AFFORDABLE = 4e9  # the cost N·J·M²·L (L² if coupled) at which the collapsed bound and its gradient take half a second
REACH = 3.0  # see Plan.reach
STEPS = {"adam": 5000, "natgrad": 2000, "natgrad-all": 2000, "collapsed": 1000, "lbfgs": 1000}

Positions = tuple[tuple[int, Any], ...]
"""The positions of the mean and root of each q(u) among the free arrays. Those of a Kronecker root are a tuple."""


class Plan(NamedTuple):
    """A method with its settings.

    Attributes:
        method: one of `METHODS` other than "auto".
        why: why this method was chosen, for the message.
        steps: the number of steps, or of L-BFGS iterations.
        objective: what is maximised.
        natural: the positions, among the free arrays, of the mean and root of each q(u) that takes natural-gradient
            steps.
        batch_size: the number of rows in a minibatch; None for all data.
        gamma: the length of natural-gradient steps.
        reach: how far the mean of q(w) may move in one natural-gradient step, beyond a tenth of its norm. The curvature
            at q(u) may be very different from that at the end of a long step. For counts of 1e4, for example, one step
            from f = 0 leads to f = 1000, where e^f overflows.
        optimal_q: sets q(u) to its optimum at the end, if the objective does not depend on q(u); else None.
        noisy: whether the objective comes from minibatches or samples.
        levels_off: whether training stops when the objective has levelled off.
    """

    method: str
    why: str
    steps: int
    objective: Target
    natural: tuple[tuple[int, int], ...]
    batch_size: int | None
    gamma: float
    reach: float
    optimal_q: Callable | None
    noisy: bool
    levels_off: bool


class _Case(NamedTuple):
    """A model and an objective, and what they answer about how they can be trained.

    Attributes:
        model: the model at the start.
        target: what is maximised.
        objective: the objective in it, without its options and the log prior.
        options: the options of the objective.
        optimum: the objective at the optimal q(u), if that has a closed form.
        ignores_q: whether the objective is its own `optimum`, and so does not depend on q(u).
        noisy: whether the objective of all data is random.
        q: the position of each q(u) that trains.
    """

    model: Model
    target: Target
    objective: AbstractObjective
    options: Mapping[str, Any]
    optimum: Optimum | None
    ignores_q: bool
    noisy: bool
    q: Positions


def make_plan(given: Arguments, model: Model, parts: Partition) -> Plan:
    """Choose a method and its settings.

    Args:
        given: the arguments of `fit`, checked.
        model: the model at the start.
        parts: the model split into the arrays that move and all the rest.

    Raises:
        ValueError: if the arguments contradict each other, the model or the objective.
    """
    if not isinstance(given.method, str) or given.method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {given.method!r}.")
    target, (objective, options) = Target(given.objective, given.log_prior), unwrapped(given.objective)
    optimum = objective.optimum(model, options)
    ignores_q = optimum is not None and optimum.bound is objective
    noisy = target.takes_key and objective.is_noisy(model, options)
    stepwise = _step_options(given, target)
    case = _Case(model, target, objective, options, optimum, ignores_q, noisy, _trained_q(model, parts))
    method, why = _choose(given, case, bool(stepwise)) if given.method == "auto" else (given.method, "as asked")
    _check_method(method, given, stepwise, noisy)
    if given.stream is not None:
        _check_stream(method, case)
    if method == "collapsed":
        bound = _collapsed(model, optimum)
        if not ignores_q:
            target, ignores_q = Target(bound, given.log_prior), True
    optimal_q = _optimal_q(optimum, case.q) if optimum is not None and ignores_q else None
    steps = STEPS[method] if given.steps is None else given.steps
    levels_off = target.is_in_nats and given.patience is None and given.optimiser is None
    plan = Plan(method, why, steps, target, (), None, 1.0, math.inf, optimal_q, noisy, levels_off)
    return plan if method in LBFGS else _by_steps(plan, given, case)


def _by_steps(plan: Plan, given: Arguments, case: _Case) -> Plan:
    """The plan with the settings that only gradient steps have: the size of minibatches and the lengths of steps."""
    model, optimum, batch_size = case.model, case.optimum, _batch_size(given, case.target)
    ordinary = optimum is not None and optimum.collapsed and not case.ignores_q
    lands = ordinary and batch_size is None and _can_be_optimal(conjugate_layer(model))
    quadratic = case.objective.is_quadratic(model, case.options)
    near = not quadratic and all(layer.is_whitened for layer in model.layers)
    return plan._replace(
        natural=_natural(plan.method, case.q, plan.optimal_q),
        batch_size=batch_size,
        gamma=float(given.gamma if given.gamma is not None else (1.0 if lands else 0.1)),
        reach=REACH if near else math.inf,
        noisy=plan.noisy or batch_size is not None,
    )


def _step_options(given: Arguments, target: Target) -> tuple[str, ...]:
    """The names of the given options that only gradient steps have."""
    minibatches = _has_minibatches(given)
    if minibatches and not target.takes_num_data:
        raise ValueError(
            "this objective needs all data at once: it takes no num_data, or cannot scale a minibatch up; leave "
            "batch_size out, or use one such as ig.elbo."
        )
    if given.optimiser is not None and given.learning_rate is not None:
        raise ValueError("learning_rate is that of the default Adam; put it into optimiser, or leave one of them out.")
    options = {
        "batch_size": minibatches,
        "optimiser": given.optimiser is not None,
        "learning_rate": given.learning_rate is not None,
        "gamma": given.gamma is not None,
        "clamp": given.clamp > 0,
    }
    return tuple(name for name, is_given in options.items() if is_given)


def _has_minibatches(given: Arguments) -> bool:
    return given.batch_size is not None and (given.stream is not None or given.batch_size < len(given.data))


def _trained_q(model: Model, parts: Partition) -> Positions:
    """The positions of each q(u) whose mean and root are trained. Tied ones occur once."""
    where = free_positions(model, parts)
    gaussians = [q for layer in model.layers for q in layer.gaussians()]
    pairs = [(where.get(id(mean)), jax.tree.map(lambda r: where.get(id(r)), root)) for mean, root in gaussians]
    return tuple(dict.fromkeys((m, r) for m, r in pairs if m is not None and r is not None))


def _choose(given: Arguments, case: _Case, stepwise: bool) -> tuple[str, str]:
    """The method for "auto", and why. `stepwise` says whether the user gave options that only gradient steps have."""
    if not stepwise:
        collapsed = case.optimum is not None and case.optimum.collapsed
        if collapsed and case.ignores_q:
            return "collapsed", "the objective is the collapsed bound"
        if not case.target.takes_num_data:
            if case.noisy:
                return "adam", "the objective samples"
            return "lbfgs", "the objective is of all data and has no noise"
        if case.q and collapsed and _is_affordable(case.model, given.num_data):
            return "collapsed", "one sparse GP with Gaussian noise has an optimal q(u) in closed form"
    if case.q and not case.ignores_q and not isinstance(case.q[-1][1], tuple):
        return "natgrad", "natural gradients for q(u) of the last sparse GP, gradient steps for the rest"
    return "adam", "gradient steps for all parameters"


def _is_affordable(model: Model, num_data: int) -> bool:
    """Whether the collapsed bound is cheap, and the model's q(u) is full or coupled, as its optimum is."""
    layer = conjugate_layer(model)
    if layer is None or not (qu.is_full(layer.root) or qu.is_coupled(layer.root)):
        return False
    L, M, J = layer.prior.num_latents, layer.num_features, layer.prior.num_sites
    return num_data * J * M**2 * (L if weights(layer.prior) is None else L**2) <= AFFORDABLE


def _check_method(method: str, given: Arguments, options: tuple[str, ...], noisy: bool) -> None:
    if method in LBFGS and options:
        raise ValueError(
            f"method={method!r} is L-BFGS on all data and takes no {' or '.join(options)}; use 'natgrad' or 'adam', or "
            "leave that out."
        )
    if method == "lbfgs" and noisy:
        raise ValueError("method='lbfgs' needs an objective without noise, and this one samples; use 'adam'.")
    if given.gamma is not None and not method.startswith("natgrad"):
        raise ValueError(
            f"gamma={given.gamma} is the length of natural-gradient steps, which {method!r} does not take; leave it "
            "out."
        )


def _check_stream(method: str, case: _Case) -> None:
    """Raise a ValueError if the method or the objective needs all data in memory."""
    by_minibatches = method not in LBFGS and case.target.takes_num_data
    if not by_minibatches and method != "collapsed" and case.objective.needs_data:
        raise ValueError(
            "this objective or method needs all data in memory, which a stream does not provide; use one that takes "
            "minibatches, such as ig.elbo with 'natgrad' or 'adam', or method='collapsed'."
        )
    if num_devices() > 1 and jax.tree.leaves([layer.per_datum() for layer in case.model.layers]):
        raise ValueError(
            f"a PerDatumEncoder holds numbers of each datum and trains on one device, and there are {num_devices()}; "
            "use ig.layers.Amortised."
        )


def _collapsed(model: Model, optimum: Optimum | None) -> Callable:
    """The collapsed bound of the model, or a ValueError if there is none."""
    if conjugate_layer(model) is None:
        kinds = ", ".join(type(part).__name__ for part in (*model.layers, model.likelihood))
        raise ValueError(
            f"method='collapsed' is for one SparseGP layer with Gaussian noise, not ({kinds}); use 'natgrad'."
        )
    if optimum is None or not optimum.collapsed:
        raise ValueError("method='collapsed' maximises ig.collapsed_elbo; leave objective out, or use another method.")
    return optimum.bound


def _optimal_q(optimum: Optimum, q: Positions) -> Callable | None:
    """The function that sets q(u) to its optimum at the end, for an objective that does not depend on q(u)."""
    if not (q or optimum.required):
        return None
    if not q:
        raise ValueError(
            "this objective, or method='collapsed', sets q(u) to its optimum, but freeze holds it; train the other "
            "parameters by ig.elbo and 'adam', or leave q(u) out of freeze."
        )
    if any(isinstance(root, tuple) for _, root in q):
        raise ValueError(
            "this objective, or method='collapsed', sets q(u) to its optimum, which has no Kronecker root; build the "
            "SparseGP without root, or use ig.elbo and 'adam'."
        )
    return optimum.attain


def _natural(method: str, q: Positions, optimal_q: Callable | None) -> tuple[tuple[int, int], ...]:
    """The positions of each q(u) that takes natural-gradient steps."""
    if not method.startswith("natgrad"):
        return ()
    natural = q if method == "natgrad-all" else q[-1:]
    if not natural or optimal_q or any(isinstance(root, tuple) for _, root in natural):
        raise ValueError(
            f"method={method!r} needs a SparseGP layer whose mean and root (of no Kronecker form) the objective "
            "trains; use 'adam'."
        )
    return natural


def _batch_size(given: Arguments, target: Target) -> int | None:
    """The number of rows in a minibatch; None for all data."""
    if given.batch_size is not None:
        return given.batch_size if _has_minibatches(given) else None
    if given.stream is not None:
        return min(BATCH, given.num_data)
    return BATCH if target.takes_num_data and len(given.data) > 2 * BATCH else None


def _can_be_optimal(layer: SparseGP | None) -> bool:
    """Whether q(u) has the form of its optimum, which a natural-gradient step of length 1 then reaches.

    A q(u) that lacks some of the correlations would overshoot: each of its parts would move to its optimum for the
    current values of the others, and all would move at once.
    """
    if layer is None:
        return False
    alone = layer.prior.num_latents == 1 or weights(layer.prior) is None
    return qu.is_coupled(layer.root) or (qu.is_full(layer.root) and alone)
