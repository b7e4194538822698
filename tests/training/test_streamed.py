"""Training on streams: the same steps, bounds and gradients as in memory."""

import errno
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pyarrow.parquet
import pytest
import safetensors

import inducing as ig
from inducing._xla import compiled
from inducing.bounds.passes import Pass
from inducing.data import Data
from inducing.parameters import partition
from inducing.training.ascent_by_passes import StreamedAscent
from inducing.training.compiled_steps import advance_on, start_key
from inducing.training.problem import make_problem

N, B = 300, 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = np.sin(2 * X[:, :1]) + 0.1 * RNG.normal(size=(N, 1))
quiet = partial(ig.fit, progress=False)


def regression():
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(np.ones(2))), ig.features.InducingPoints(X[:10]))
    return ig.Model(gp, ig.likelihoods.Gaussian(0.1))


@pytest.mark.parametrize(
    "options", [{"method": "adam"}, {"method": "natgrad", "gamma": 0.3}], ids=lambda o: o["method"]
)
def test_steps_are_those_in_memory(options):
    """If a minibatch is all rows, the order of which does not matter."""
    options |= {"optimiser": optax.adam(0.02), "steps": 20}
    in_memory = quiet(regression(), (X, Y), **options)
    streamed = quiet(regression(), ig.Stream((X, Y)), batch_size=N, **options)
    np.testing.assert_allclose(streamed.history.bound, in_memory.history.bound, rtol=1e-9)
    assert f"minibatches of {N} from a stream of {N} rows" in streamed.message


def test_a_fit_by_minibatches_reaches_the_collapsed_bound():
    result = quiet(
        regression(), ig.Stream((X, Y), window=64), batch_size=B, steps=600, freeze=lambda m: m.layers[0].features
    )
    assert result.method == "natgrad"
    best = float(ig.collapsed_elbo(result.model, (X, Y)))
    assert best - 3.0 < float(ig.elbo(result.model, (X, Y))) <= best


def test_deep_latent_models_by_importance_weighting():
    """The objective before a step is that of the step's minibatch and key, for any β and number of samples."""
    latent = ig.LatentVariable(1, ig.layers.Amortised.mlp(jax.random.key(1), dim=1, x=2, y=1))
    prior = ig.priors.Independent(ig.kernels.Matern52(), 2)
    inner = ig.SparseGP(prior, ig.features.InducingPoints(RNG.normal(size=(5, 3))))
    outer = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(RNG.normal(size=(5, 2))))
    model = ig.Model([latent, inner, outer], ig.likelihoods.Gaussian(0.1))
    objective = partial(ig.elbo, importance=3, beta=0.7)
    stream = ig.Stream((X, Y), window=100)
    result = quiet(
        model,
        stream,
        objective=objective,
        batch_size=B,
        steps=7,
        method="adam",
        optimiser=optax.sgd(0.0),
        initialise=False,
    )
    key = start_key(None, jnp.zeros((), jnp.int32))
    seed = tuple(map(int, jax.random.key_data(key)))
    bound = eqx.filter_jit(objective)
    for step, batch in zip(range(7), stream.batches(B, seed=seed), strict=False):
        expected = bound(model, batch, key=jax.random.fold_in(key, step), num_data=N)
        np.testing.assert_allclose(result.history.bound[step], expected, rtol=1e-9)


def coupled():
    """Two outputs that mix two latents, each with its noise."""
    kernels = [ig.kernels.Matern52(), ig.kernels.SquaredExponential(0.7)]
    prior = ig.priors.LMC(RNG.normal(size=(2, 2)), kernels)
    gp = ig.SparseGP(prior, ig.features.InducingPoints(X[:8]))
    return ig.Model(gp, ig.likelihoods.Gaussian(jnp.array([0.1, 0.3])))


MISSING = np.hstack([Y, np.cos(X[:, :1])])
MISSING[RNG.uniform(size=MISSING.shape) < 0.2] = np.nan
WEIGHT = RNG.uniform(0.5, 2.0, N)


@pytest.mark.parametrize("make", [regression, coupled])
def test_value_and_gradient_by_two_passes(make, monkeypatch):
    """With missing labels, weights and a log prior, in several chunks of which the last one is not full."""
    monkeypatch.setattr("inducing.bounds.passes.CHUNK", 70)
    y = Y if make is regression else MISSING
    table = {"a": X[:, 0], "b": X[:, 1], "w": WEIGHT} | {f"y{i}": c for i, c in enumerate(y.T)}
    stream = ig.Stream([table], x=["a", "b"], y=[f"y{i}" for i in range(y.shape[1])], weight="w", num_data=N)
    model, data = make(), ig.Data(X, y, weight=WEIGHT)

    def log_prior(model):
        return -jnp.sum(model.likelihood.variance**2)

    problem = make_problem(model, partition(model, lambda m: m.layers[0].gaussians()), data)
    numbers = StreamedAscent(problem, Pass(stream, stream.sample()), log_prior).numbers(problem.free, None)

    @jax.jit
    @jax.value_and_grad
    def in_memory_at(free):
        return ig.collapsed_elbo.evaluate(problem.model(free), data) + log_prior(problem.model(free))

    value, grads = in_memory_at(problem.free)
    np.testing.assert_allclose(numbers[0], value, rtol=1e-11)
    expected = np.concatenate([np.ravel(g) for g in grads])
    assert np.linalg.norm(numbers[1:] - expected) <= 1e-9 * np.linalg.norm(expected)
    np.testing.assert_allclose(ig.collapsed_elbo(model, stream), ig.collapsed_elbo(model, data), rtol=1e-11)
    of_stream, in_memory = ig.collapse(model, stream), eqx.filter_jit(ig.collapse)(model, data)
    np.testing.assert_allclose(of_stream.predict(X[:3]).mean, in_memory.predict(X[:3]).mean, rtol=1e-8)


def test_the_collapsed_bound_trains_and_is_certified():
    stream = ig.Stream((X, Y))
    first, second = (quiet(regression(), data, method="collapsed", steps=8) for data in ((X, Y), stream))
    np.testing.assert_allclose(second.history.bound, first.history.bound, rtol=1e-6)
    np.testing.assert_allclose(second.model.predict(X[:5]).mean, first.model.predict(X[:5]).mean, rtol=1e-4)
    assert f"all data, a stream of {N} rows" in second.message
    upper, evidence = ig.evidence_upper_bound(second.model, stream), ig.log_evidence(second.model, (X, Y))
    assert ig.collapsed_elbo(second.model, stream) < evidence < upper
    with pytest.raises(TypeError, match="log_evidence needs data in memory"):
        ig.log_evidence(second.model, stream)


def test_fourier_sums_are_computed_in_one_pass():
    x = X[:, 0]
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern32()), ig.features.Fourier(-5.0, 5.0, 10))
    model, stream = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ig.Stream((x, Y))
    objective = ig.PrecomputedElbo(model, stream)
    exact = eqx.filter_jit(ig.collapsed_elbo)(model, (x, Y))
    np.testing.assert_allclose(eqx.filter_jit(objective)(model), exact, rtol=1e-9)
    results = [quiet(model, data, objective=objective, steps=5) for data in (stream, (x, Y))]
    np.testing.assert_allclose(results[0].history.bound, results[1].history.bound, rtol=1e-9)
    narrow = ig.Model(ig.SparseGP(ig.GP(ig.kernels.Matern32()), ig.features.Fourier(-1.0, 1.0, 3)), model.likelihood)
    with pytest.raises(ValueError, match=r"outside of \[a, b\]"):
        ig.PrecomputedElbo(narrow, stream)


class Killed(Exception):
    pass


@pytest.mark.parametrize("method", ["natgrad", "collapsed"])
def test_a_killed_fit_resumes_bit_identically(tmp_path, method):
    """Also in the middle of an epoch and of a window."""
    options = {"method": method, "steps": 33, "held_out": (X[:20], Y[:20])}
    options |= {} if method == "collapsed" else {"batch_size": B}

    def kill(progress):
        if progress.step >= 20:
            raise Killed

    stream = ig.Stream((X, Y), window=128)
    whole = quiet(regression(), stream, **options, callback=lambda p: None)
    with pytest.raises(Killed):
        quiet(regression(), stream, **options, callback=kill, checkpoint=tmp_path, checkpoint_every=7)
    (tmp_path / "fit.safetensors").unlink()  # the callback is another one
    resumed = quiet(regression(), stream, **options, callback=lambda p: None, checkpoint=tmp_path)
    assert resumed.message == whole.message
    np.testing.assert_array_equal(resumed.history.bound, whole.history.bound)
    for a, b in zip(jax.tree.leaves(resumed.model), jax.tree.leaves(whole.model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_step_is_compiled_once():
    programs = compiled(advance_on)
    before = len(programs)
    for seed in (1, 2):
        quiet(regression(), ig.Stream((X[:290], Y[:290])), batch_size=B, steps=15, key=jax.random.key(seed))
    assert len(programs) == before + 1


def parquet(path, y):
    pa.parquet.write_table(pa.table({"a": X[:, 0], "y": y}), path, row_group_size=50)
    return ig.Stream(path, x="a", y="y")


def vanish(path, monkeypatch):
    path.unlink(missing_ok=True)


def lengthen(path, monkeypatch):
    with open(path, "ab") as file:
        file.write(b"more")


def fill_the_disk(path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("inducing.io.container.os.fsync", full)


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        (vanish, FileNotFoundError, r"rows\.parquet: the file has vanished"),
        (lengthen, ValueError, r"rows\.parquet: the file has \d+ bytes, and had"),
        (fill_the_disk, OSError, "No space left on device"),
    ],
)
def test_a_fault_ends_the_fit_and_its_checkpoint_stays(tmp_path, monkeypatch, fault, error, says):
    monkeypatch.setattr("inducing.streams.stream.HELD", 1)  # read little ahead
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(X[:5, :1]))
    model, path = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), tmp_path / "rows.parquet"
    stream = parquet(path, Y[:, 0])
    options = {"batch_size": B, "steps": 400, "checkpoint": tmp_path / "run", "checkpoint_every": 1}

    def strike(progress):
        if kept.exists():
            fault(path, monkeypatch)

    kept = tmp_path / "run" / "start-0-steps.safetensors"
    with pytest.raises(error, match=says):
        quiet(model, stream, **options, callback=strike)
    with safetensors.safe_open(kept, "numpy") as file:
        assert list(file.keys())


def test_labels_are_checked_while_they_are_read(tmp_path):
    x, rare = np.tile(X, (100, 1)), np.tile((Y[:, 0] > 0).astype(float), 100)
    sampled = ig.Stream((x, rare)).sample().index
    rare[np.setdiff1d(np.arange(len(x)), sampled)[0]] = 2.0
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(np.ones(2))), ig.features.InducingPoints(X[:5]))
    model = ig.Model(gp, ig.likelihoods.Bernoulli())
    with pytest.raises(ValueError, match=r"labels of Bernoulli must be 0 or 1, got 2\.0"):
        quiet(model, ig.Stream((x, rare)), batch_size=3000, steps=20)


def test_what_a_stream_cannot_do_is_refused():
    stream = ig.Stream((X, Y))
    with pytest.raises(ValueError, match="needs all data in memory"):
        quiet(regression(), stream, objective=ig.log_evidence)
    with pytest.raises(ValueError, match="needs all data in memory"):
        quiet(regression(), stream, method="lbfgs")
    with pytest.raises(ValueError, match="batch_size must be a whole number, from 1 to"):
        quiet(regression(), stream, batch_size=N + 1)
    assert isinstance(stream.sample(), Data)
