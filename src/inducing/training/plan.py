"""How to train: what the user asked for, or what suits the model and the data."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from inducing.bounds.collapsed import collapse, collapsed_elbo, log_evidence
from inducing.bounds.elbo import elbo
from inducing.bounds.gplvm import gplvm_collapse, gplvm_elbo
from inducing.data import Data
from inducing.layers import qu
from inducing.layers.sparse_gp import SparseGP, sparse_gps
from inducing.parameters import Partition
from inducing.priors.base import weights
from inducing.training.problem import Objective, Problem, base, bound

METHODS = ("auto", "adam", "natgrad", "natgrad-all", "collapsed", "lbfgs")
BATCH = 1024  # rows in a default minibatch; up to twice as many data are taken whole
AFFORDABLE = 4e9  # N·J·M²·L (L² if coupled) up to which the collapsed bound and its gradient take about half a second
OPTIMAL_Q = {collapsed_elbo: collapse, log_evidence: collapse, gplvm_elbo: gplvm_collapse}
REACH = 3.0  # of the prior's standard deviations that q(u) may move by in a natural step, and a tenth of where it is
STEPS = {"adam": 5000, "natgrad": 2000, "natgrad-all": 2000, "collapsed": 1000, "lbfgs": 1000}


class Plan(NamedTuple):
    """A method with all that it needs.

    `natural` are the positions, among the free arrays, of the mean and root of each q(u) that takes natural-gradient
    steps.

    Of these steps `gamma` is the length; `reach` bounds, in standard deviations of the prior, how far q(u) moves in
    one, beside a tenth of what it has moved before. The curvature of the objective at q(u) may say nothing of that
    where a step leads: for counts of 1e4, one from f = 0 went to 1000, where e^f is no number.

    `optimal_q` sets q(u) to its optimum at the end, for an objective that does not look at it; `noisy` says that the
    objective comes from minibatches or samples; `why` is for the message.
    """

    method: str
    why: str
    objective: Objective
    natural: tuple[tuple[int, int], ...]
    batch_size: int | None
    gamma: float
    reach: float
    optimal_q: Callable | None
    noisy: bool

    @property
    def default_steps(self) -> int:
        """How many steps are taken if nobody says."""
        return STEPS[self.method]


def make_plan(
    model: Any,
    data: Data,
    parts: Partition,
    objective: Callable,
    log_prior: Callable | None,
    method: str,
    batch_size: int | None,
    gamma: float | None,
    asked: tuple[str, ...],
) -> Plan:
    """Choose, and refuse what cannot be. `asked` names the given options that only gradient steps have."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {method!r}.")
    target = Objective(objective, log_prior)
    minibatches = batch_size is not None and batch_size < len(data)
    if minibatches and not target.takes_num_data:
        raise ValueError(
            "this objective needs all data at once: it takes no num_data to scale a minibatch up, or cannot; leave "
            "batch_size out, or use one such as ig.elbo."
        )
    if "optimiser" in asked and "learning_rate" in asked:
        raise ValueError("learning_rate is that of the default Adam; put it into optimiser, or leave one of them out.")
    asked = ("batch_size", *asked) if minibatches else asked
    q = _trained_q(parts)
    integrates = base(objective) is elbo and bound(objective).get("integrate", True)  # without noise in one layer
    samples = target.takes_key and (model.is_stochastic or not integrates)
    why = "as asked"
    if method == "auto":
        method, why = _choose(model, data, target, q, samples, bool(asked))
    if method in ("collapsed", "lbfgs") and asked:
        raise ValueError(
            f"method={method!r} is L-BFGS on all data and knows no {' or '.join(asked)}; use 'natgrad' or 'adam', or "
            "leave that out."
        )
    if method == "collapsed":
        _check_collapsed(model, objective)
        target = Objective(collapsed_elbo, log_prior)
    optimal_q = OPTIMAL_Q.get(target.fn)
    if optimal_q:
        _check_optimal(q)
    if method == "lbfgs" and samples:
        raise ValueError("method='lbfgs' needs an objective without noise, and this one samples; use 'adam'.")
    natural: tuple[tuple[int, int], ...] = ()
    if method.startswith("natgrad"):
        natural = q if method == "natgrad-all" else q[-1:]
        if not natural or optimal_q or any(isinstance(root, tuple) for _, root in natural):
            raise ValueError(
                f"method={method!r} needs a SparseGP layer whose mean and root (of no Kronecker form) the objective "
                "trains; use 'adam'."
            )
    elif "gamma" in asked:
        raise ValueError(
            f"gamma={gamma} is the length of natural-gradient steps, which {method!r} does not take; leave it out."
        )
    whole = method in ("lbfgs", "collapsed") or not target.takes_num_data
    if not whole and batch_size is None and len(data) > 2 * BATCH:
        batch_size, minibatches = BATCH, True
    quadratic = _is_conjugate(model) and integrates  # in u: its curvature is the same everywhere
    lands = quadratic and objective is elbo and _can_be_optimal(model.layers[0])
    gamma = gamma if gamma is not None else (1.0 if lands and not minibatches else 0.1)
    whitened = all(layer.coordinates == "w" for layer in sparse_gps(model))
    size, reach = batch_size if minibatches else None, REACH if whitened and not quadratic else math.inf
    return Plan(method, why, target, natural, size, float(gamma), reach, optimal_q, samples or minibatches)


def _trained_q(parts: Partition) -> tuple[tuple[int, Any], ...]:
    """The positions of the mean and root (a tuple for a Kronecker one) of each q(u) that trains, tied ones once."""
    where = sparse_gps(Problem(parts, [None] * len(parts.free)).positions())
    pairs: list[Any] = [(gp.mean, gp.root) for gp in where if gp.mean is not None and gp.root is not None]
    return tuple(dict.fromkeys(pairs))


def _is_conjugate(model: Any) -> bool:
    layer = model.layers[0]
    alone = len(model.layers) == 1 and isinstance(layer, SparseGP)
    return alone and model.likelihood.has_gaussian_noise(layer.prior.num_outputs)


def _can_be_optimal(layer: SparseGP) -> bool:
    """Whether q(u) has the form of its optimum, where a natural step of length 1 lands. One that leaves correlations
    out overshoots: its parts all go at once to where each should be if the others stayed."""
    alone = layer.prior.num_latents == 1 or weights(layer.prior) is None
    return qu.is_coupled(layer.root) or (qu.is_full(layer.root) and alone)


def _choose(model: Any, data: Data, target: Objective, q: tuple, samples: bool, stepwise: bool) -> tuple[str, str]:
    if target.fn is collapsed_elbo and not stepwise:
        return "collapsed", "the objective is the collapsed bound"
    if not target.takes_num_data and not stepwise:
        return (
            ("adam", "the objective samples") if samples else ("lbfgs", "the objective is of all data and has no noise")
        )
    full = _is_conjugate(model) and not qu.is_diagonal(root := model.layers[0].root) and not qu.is_kronecker(root)
    if target.fn is elbo and full and q and not stepwise:
        layer = model.layers[0]
        L, M, J = layer.prior.num_latents, layer.num_features, layer.prior.num_sites
        cost = len(data) * J * M**2 * (L if weights(layer.prior) is None else L**2)
        if cost <= AFFORDABLE:
            return "collapsed", "one sparse GP with Gaussian noise has an optimal q(u) in closed form"
    if q and target.fn not in OPTIMAL_Q and not isinstance(q[-1][1], tuple):
        return "natgrad", "natural gradients for q(u) of the last sparse GP, gradient steps for the rest"
    return "adam", "gradient steps for all parameters"


def _check_collapsed(model: Any, objective: Callable) -> None:
    if not _is_conjugate(model):
        kinds = ", ".join(type(part).__name__ for part in (*model.layers, model.likelihood))
        raise ValueError(
            f"method='collapsed' is for one SparseGP layer with Gaussian noise, not ({kinds}); use 'natgrad'."
        )
    if objective not in (elbo, collapsed_elbo):
        raise ValueError("method='collapsed' maximises ig.collapsed_elbo; leave objective out, or use another method.")


def _check_optimal(q: tuple) -> None:
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
