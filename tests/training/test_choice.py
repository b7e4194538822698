"""What fit picks, and what it refuses before it compiles anything."""

import inspect
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.data import as_data
from inducing.parameters import partition
from inducing.training.choice import make_plan

from .problems import regression, wave

X, y = wave(30)


def plan(model, data, objective=ig.elbo, method="auto", batch_size=None, optimiser=None, freeze=None):
    data = as_data(data)
    return make_plan(model, data, partition(model, freeze), objective, None, method, batch_size, optimiser, None)


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
    assert plan(regression(), (X, y), method="natgrad").gamma == 1.0
    assert plan(classification(), (X, labels)).gamma == 0.1


def test_collapsed_bound_of_too_many_data_is_left_for_minibatches(monkeypatch):
    monkeypatch.setattr("inducing.training.choice.AFFORDABLE", 1e3)
    assert plan(regression(), (X, y)).method == "natgrad"


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
        ({"learning_rate": 0.0}, "learning_rate must be greater than 0"),
        ({"gamma": 1.5}, r"gamma.*\(0, 1\].*1.5"),
        ({"objective": ig.log_evidence, "batch_size": 5}, "num_data"),
        ({"objective": ig.log_evidence, "method": "natgrad"}, "natgrad"),
        ({"objective": partial(ig.elbo, beta=0.5), "method": "collapsed"}, "collapsed_elbo"),
        ({"method": "collapsed", "batch_size": 5}, "batch_size"),
        ({"method": "collapsed", "freeze": lambda m: m.layers[0].mean}, "freeze"),
        ({"method": "lbfgs", "batch_size": 5}, "minibatches"),
        ({"freeze": lambda m: jnp.zeros(3)}, "freeze must return parts of the model"),
        ({"held_out": (np.zeros((3, 2)), np.zeros(3))}, "held_out: X has 2 columns"),
    ],
)
def test_options_that_cannot_be(options, says):
    with pytest.raises(ValueError, match=says):
        ig.fit(regression(), (X, y), progress=False, **options)


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


def test_a_column_without_labels_is_named():
    gp = regression().layers[0]
    model = ig.Model(gp, ig.likelihoods.HeteroscedasticGaussian())
    with pytest.raises(ValueError, match="needs 2 latent functions"):
        ig.fit(model, (X, y), progress=False)
    known = ig.likelihoods.Gaussian(ig.likelihoods.PerDatum(np.ones(29), new=1.0))
    with pytest.raises(ValueError, match=r"PerDatum values for 29 data.*reaches 29"):
        ig.fit(ig.Model(gp, known), (X, y), progress=False)


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
