"""What fit picks, and what it refuses before it compiles anything."""

import inspect
import re
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import inducing as ig
from inducing.data import as_data
from inducing.parameters import partition
from inducing.training.arguments import Arguments
from inducing.training.plan import make_plan

from .problems import regression, wave

X, y = wave(30)


DEFAULTS = {name: p.default for name, p in inspect.signature(inspect.unwrap(ig.fit)).parameters.items()}


def plan(model, data, **options):
    given = Arguments(**DEFAULTS | {"model": model, "data": as_data(data)} | options)
    return make_plan(given, model, partition(model, given.freeze))


def classification():
    return ig.Model(regression().layers[0], ig.likelihoods.Bernoulli())


def test_what_is_picked():
    labels = (y > 0).astype(float)
    big = np.zeros((3000, 1))
    assert plan(regression(), (X, y)).method == "collapsed"
    assert plan(regression(), (X, y), batch_size=10).method == "natgrad"
    assert plan(regression(), (X, y), objective=ig.log_evidence).method == "lbfgs"
    assert plan(regression(), (X, y), objective=ig.collapsed_elbo).method == "collapsed"
    assert plan(regression(), (X, y), objective=partial(ig.elbo, beta=0.5)).method == "natgrad"
    assert plan(regression(root=np.ones(16)), (X, y)).method == "natgrad"
    assert plan(classification(), (X, labels)).method == "natgrad"
    assert plan(regression(), (X, y), freeze=lambda m: m.layers[0].root).method == "adam"
    assert plan(classification(), (big, np.zeros(3000))).batch_size == 1024
    assert plan(classification(), (X, labels)).batch_size is None
    for option in ({"optimiser": optax.sgd(0.1)}, {"learning_rate": 0.1}, {"gamma": 0.5}, {"clamp": 5}):
        assert plan(regression(), (X, y), **option).method == "natgrad"  # L-BFGS has no such option
    assert plan(regression(), (X, y), method="natgrad").gamma == 1.0
    assert plan(regression(root=np.ones(16)), (X, y)).gamma == 0.1  # a diagonal q(u) would overshoot
    assert plan(classification(), (X, labels)).gamma == 0.1


def test_options_of_an_objective_that_change_nothing_do_not_change_the_plan():
    ordinary = plan(regression(), (X, y))
    for objective in (partial(ig.elbo, beta=1.0), partial(partial(ig.elbo), samples=1)):
        found = plan(regression(), (X, y), objective=objective)
        assert found.method == "collapsed" and found.optimal_q is ordinary.optimal_q
        assert plan(regression(), (X, y), objective=objective, method="natgrad").gamma == 1.0
    assert plan(regression(), (X, y), objective=partial(ig.collapsed_elbo)).method == "collapsed"


def test_an_objective_with_its_own_key_is_not_noisy():
    """Its samples are the same at every step, so L-BFGS may maximise it."""
    features = regression().layers[0].features
    deep = ig.Model([ig.SparseGP(ig.GP(ig.kernels.Matern52()), features)] * 2, ig.likelihoods.Gaussian(0.1))
    assert plan(deep, (X, y), method="adam").noisy
    same = partial(ig.elbo, key=jax.random.key(0))
    assert not plan(deep, (X, y), objective=same, method="lbfgs").noisy
    with pytest.raises(ValueError, match="needs an objective without noise"):
        plan(deep, (X, y), method="lbfgs")


def test_natural_steps_are_short_where_q_leaves_correlations_out():
    """Three latents that one mixture sees: steps of length 1 for each of them add up to three, and diverge."""
    features, labels = regression().layers[0].features, np.tile(np.reshape(y, (30, 1)), 3)

    def gamma(prior, root=None):
        model = ig.Model(ig.SparseGP(prior, features, root=root), ig.likelihoods.Gaussian(0.1))
        return plan(model, (X, labels), method="natgrad").gamma

    mixture = ig.priors.LMC(np.ones((3, 3)), ig.kernels.Matern52())
    assert gamma(mixture) == 0.1
    assert gamma(mixture, np.eye(48)) == 1.0
    assert gamma(ig.priors.Independent(ig.kernels.Matern52(), num=3)) == 1.0


def test_importance_weighting_of_weights_sees_all_data():
    """The logarithm of a mean over weights is not a sum over data: no minibatches, however many data there are."""
    big, labels = np.linspace(-1.0, 1.0, 2100), np.linspace(-1.0, 1.0, 2100)
    model = ig.Model(ig.BayesianDense(1, 1), ig.likelihoods.Gaussian(0.1))
    options = {"objective": partial(ig.iw_elbo_global, importance=2), "progress": False}
    result = ig.fit(model, (big, labels), steps=2, held_out=(big[:9], labels[:9]), **options)
    assert result.method == "adam" and "2 steps on all data" in result.message
    with pytest.raises(ValueError, match=r"all data at once.*leave batch_size out"):
        ig.fit(model, (big, labels), batch_size=1000, **options)


def test_collapsed_bound_of_too_many_data_is_left_for_minibatches(monkeypatch):
    monkeypatch.setattr("inducing.training.plan.AFFORDABLE", 1e3)
    assert plan(regression(), (X, y)).method == "natgrad"


def test_the_cost_of_a_collapsed_bound_counts_sites_and_pairs_of_coupled_latents(monkeypatch):
    """Three smoothed outputs of two latents: N·3 sites, each with a product of 2·16 features with themselves."""
    smoothing = ig.priors.GaussianSmoothing(np.ones((3, 2)))
    prior = ig.priors.ConvolutionProcess(smoothing, ig.kernels.SquaredExponential())
    model = ig.Model(ig.SparseGP(prior, regression().layers[0].features), ig.likelihoods.Gaussian(0.1))
    cost, labels = 30 * 3 * 32**2, np.tile(np.reshape(y, (30, 1)), 3)
    for limit, method in ((cost, "collapsed"), (cost - 1, "natgrad")):
        monkeypatch.setattr("inducing.training.plan.AFFORDABLE", limit)
        assert plan(model, (X, labels)).method == method


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "newton"}, "method must be one of .*'natgrad'.*got 'newton'"),
        ({"batch_size": 31}, "batch_size must be .* number of rows, 30; got 31"),
        ({"batch_size": 0}, "batch_size"),
        ({"steps": -1}, "steps must be a whole number, at least 0; got -1"),
        ({"starts": 0}, "starts"),
        ({"patience": 0}, "patience"),
        ({"clamp": -1}, "clamp"),
        ({"learning_rate": 0.0}, "learning_rate must be a number greater than 0"),
        ({"gamma": 1.5}, r"gamma.*\(0, 1\].*1.5"),
        ({"objective": ig.log_evidence, "batch_size": 5}, "num_data"),
        ({"method": "collapsed", "clamp": 5}, "'collapsed' is L-BFGS on all data and takes no clamp"),
        ({"method": "lbfgs", "gamma": 0.5, "clamp": 5}, "'lbfgs' is L-BFGS .* takes no gamma or clamp"),
        ({"method": "lbfgs", "optimiser": optax.sgd(0.1)}, "takes no optimiser"),
        ({"method": "collapsed", "learning_rate": 0.1}, "takes no learning_rate"),
        ({"method": "adam", "gamma": 0.5}, "gamma=0.5 is the length of natural-gradient steps"),
        ({"optimiser": optax.sgd(0.1), "learning_rate": 0.1}, "learning_rate is that of the default Adam"),
        ({"objective": ig.log_evidence, "method": "natgrad"}, "natgrad"),
        ({"objective": partial(ig.elbo, beta=0.5), "method": "collapsed"}, "collapsed_elbo"),
        ({"method": "collapsed", "batch_size": 5}, "batch_size"),
        ({"method": "collapsed", "freeze": lambda m: m.layers[0].mean}, "freeze"),
        ({"method": "lbfgs", "batch_size": 5}, "batch_size"),
        ({"method": "lbfgs", "objective": lambda m, d, key: ig.elbo(m, d)}, "this one samples"),
        ({"method": "lbfgs", "objective": partial(ig.elbo, integrate=False)}, "this one samples"),
        ({"freeze": lambda m: jnp.zeros(3)}, "freeze must return parts of the model"),
        ({"held_out": (np.zeros((3, 2)), np.zeros(3))}, "held_out: X has 2 columns"),
        ({"held_out": (np.zeros((3, 1)), np.zeros(2))}, "held_out: x has 3 rows"),
    ],
)
def test_options_that_cannot_be(options, says):
    with pytest.raises(ValueError, match=says):
        ig.fit(regression(), (X, y), progress=False, **options)


@pytest.mark.parametrize("name", ["steps", "batch_size", "learning_rate", "gamma", "clamp", "starts", "patience"])
def test_options_that_are_no_numbers(name, unchecked):
    for value in ("3", [3], True):
        with pytest.raises(ValueError, match=re.escape(f"got {value!r}")) as error:
            ig.fit(regression(), (X, y), progress=False, **{name: value})
        assert str(error.value).startswith(name)


@pytest.mark.parametrize(
    ("model", "data", "says"),
    [
        (regression(), (np.zeros((5, 2)), np.zeros(5)), "X has 2 columns"),
        (regression(), (X, np.stack([y, y], 1)), "y has 2 columns.*needs 2 latent functions.*gives 1"),
        (classification(), (X, y), "labels of Bernoulli must be 0 or 1"),
        (regression(), (X, np.full(30, np.nan)), "missing"),
        (regression(), (X, y[:5]), "rows"),
        (regression(), (X[:0], y[:0]), "empty"),
    ],
)
def test_data_that_do_not_suit_the_model(model, data, says):
    with pytest.raises(ValueError, match=says):
        ig.fit(model, data, progress=False)


def test_numbers_of_outputs_and_data_that_do_not_fit():
    gp = regression().layers[0]
    with pytest.raises(ValueError, match=r"y has 2 columns, for which Gaussian needs 2 latent functions, .* gives 1"):
        ig.fit(regression(), (X, np.stack([y, y], axis=1)), progress=False)
    known = ig.likelihoods.Gaussian(ig.likelihoods.PerDatum(np.ones(29), new=1.0))
    with pytest.raises(ValueError, match=r"PerDatum values for 29 data.*reaches 29"):
        ig.fit(ig.Model(gp, known), (X, y), progress=False)


def test_held_out_data_have_no_latent_variable_or_noise_of_training_data():
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(np.zeros((30, 1))))
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(np.zeros((2, 2))))
    with pytest.raises(ValueError, match=r"held_out needs q\(h\) of new data.*Amortised"):
        ig.fit(ig.Model([latent, gp], ig.likelihoods.Gaussian()), (X, y), held_out=(X[:3], y[:3]), progress=False)
    known = ig.likelihoods.Gaussian(ig.likelihoods.PerDatum(np.r_[np.ones(30), 4.0, 9.0], new=1.0))
    model = ig.Model(regression().layers[0], known)
    with pytest.raises(ValueError, match="held_out has rows of index 0, a training datum"):
        ig.fit(model, (X, y), held_out=(X[:2], y[:2]), progress=False)
    held = ig.Data(X[:2], y[:2], index=[30, 31])
    result = ig.fit(model, (X, y), held_out=held, steps=2, progress=False)
    assert np.isclose(result.bound, eqx.filter_jit(ig.elbo)(result.model, held, num_data=30))


def test_things_of_the_wrong_kind():
    fit = inspect.unwrap(ig.fit)  # without the type checker that watches the tests
    with pytest.raises(TypeError, match=r"ig\.Model"):
        fit(regression().layers[0], (X, y))
    with pytest.raises(TypeError, match="objective"):
        fit(regression(), (X, y), objective="elbo")
    with pytest.raises(TypeError, match="log_prior"):
        fit(regression(), (X, y), log_prior=1.0)
    with pytest.raises(ValueError, match="steps"):
        fit(regression(), (X, y), steps=1.5)


@pytest.mark.parametrize("options", [{"method": "collapsed"}, {"objective": ig.log_evidence}])
def test_a_q_that_cannot_be_set_to_its_optimum_is_refused_before_the_fit(options):
    data = np.random.default_rng(0).uniform(size=(10, 2)), np.arange(10.0)
    kernel = ig.kernels.ActiveDims(ig.kernels.Matern32(), 0) * ig.kernels.ActiveDims(ig.kernels.Matern32(), 1)
    features = ig.features.Product([ig.features.Fourier(-1.0, 2.0, 1)] * 2)
    gp = ig.SparseGP(ig.GP(kernel), features, root=(np.eye(3)[None], np.eye(3)[None]))
    with pytest.raises(ValueError, match="no Kronecker root"):
        ig.fit(ig.Model(gp, ig.likelihoods.Gaussian()), data, progress=False, **options)
    full = ig.Model(ig.SparseGP(ig.GP(kernel), features), ig.likelihoods.Gaussian())
    with pytest.raises(ValueError, match="but freeze holds it"):
        ig.fit(full, data, freeze=lambda m: (m.layers[0].mean, m.layers[0].root), progress=False, **options)


def test_an_optimiser_with_nothing_to_move_is_left_alone():
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    model = ig.Model(gp, ig.likelihoods.StudentT(4.0))
    frozen = {"freeze": lambda m: (m.layers[0].prior, m.layers[0].features, m.likelihood)}
    data = np.linspace(0.0, 1.0, 5), np.arange(5.0)
    result = ig.fit(model, data, method="natgrad", steps=3, optimiser=optax.lbfgs(), progress=False, **frozen)
    assert result.bound > eqx.filter_jit(ig.elbo)(model, data)
