"""Labels and indices that do not suit a model are refused by every function that takes data."""

import sys
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pandas as pd
import polars as pl
import pytest

import inducing as ig
from inducing import FitResult
from inducing._xla import memory
from inducing.checks import check_counts, checked_data
from inducing.training.monitor import History

L, KEY = ig.likelihoods, jax.random.key(0)
X = np.linspace(-1.0, 1.0, 4)[:, None]
Y = np.array([[0.3], [0.1], [-0.4], [0.8]])
OBJECTIVES = {
    "elbo": ig.elbo,
    "collapsed_elbo": ig.collapsed_elbo,
    "collapse": ig.collapse,
    "log_evidence": ig.log_evidence,
    "natural_gradient_step": ig.natural_gradient_step,
    "fit": lambda model, data: ig.fit(model, data, steps=1, progress=False),
}
general = pytest.mark.parametrize("name", ["elbo", "natural_gradient_step", "fit"])
every = pytest.mark.parametrize("name", OBJECTIVES)


def model_of(likelihood):
    return ig.Model(ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(X[:2])), likelihood)


@pytest.mark.parametrize(
    "use",
    [
        ig.elbo,
        partial(ig.iw_elbo_global, key=KEY),
        ig.collapsed_elbo,
        ig.collapse,
        ig.log_evidence,
        ig.gplvm_elbo,
        ig.gplvm_collapse,
        ig.PrecomputedElbo,
        lambda model, data: ig.inference.predict(model, data[0]),
        lambda model, data: ig.inference.posterior(model, data[0]),
        lambda model, data: ig.inference.draw(model, KEY),
        ig.report.plot_posterior,
        ig.report.plot_classification,
    ],
)
def test_the_result_of_a_fit_is_no_model(use, unchecked):
    result = FitResult(model_of(L.Gaussian(0.1)), History(*np.zeros((3, 1))), "", "adam", 0.0)
    with pytest.raises(TypeError, match=r"model must be an ig.Model, got FitResult; of a fit, pass result.model"):
        use(result, (X, Y))


@general
@pytest.mark.parametrize("bad", [-1.0, 2.0])
def test_labels_outside_the_support(name, bad):
    with pytest.raises(ValueError, match=f"labels of Bernoulli must be 0 or 1, got {bad}"):
        OBJECTIVES[name](model_of(L.Bernoulli()), (X, np.array([0.0, 1.0, np.nan, bad])))


@every
@pytest.mark.parametrize(
    ("index", "message"),
    [([0, 1, 2, 4], "PerDatum values for 4 data, but data.index reaches 4"), ([0, 1, -1, 2], "data.index holds -1")],
)
def test_an_index_that_addresses_nothing(name, index, message):
    known = L.Gaussian(L.PerDatum([0.1, 0.2, 0.3, 0.4], new=0.1))
    with pytest.raises(ValueError, match=message):
        OBJECTIVES[name](model_of(known), ig.Data(X, Y, index=index))


def test_an_index_of_an_encoder():
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(np.zeros((4, 1))))
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(np.eye(2)))
    model = ig.Model([latent, gp], L.Gaussian(0.1))
    for index, message in (([0, 1, 2, 4], "data.index reaches 4"), ([0, -1, 2, 3], "data.index holds -1")):
        with pytest.raises(ValueError, match=message):
            ig.elbo(model, ig.Data(X, Y, index=index), key=jax.random.key(0))


@every
def test_known_noise_of_nothing(name):
    known = model_of(L.Gaussian(L.PerDatum([0.1, 0.0, 0.3, 0.4], new=0.0)))
    with pytest.raises(ValueError, match=r"Gaussian.variance has the value 0 for the datum of index 1"):
        OBJECTIVES[name](known, (X, Y))


def test_known_noise_of_nothing_is_allowed_without_a_label():
    known = model_of(L.Gaussian(L.PerDatum([0.1, 0.0, 0.3, 0.4], new=0.0)))
    y = np.where(np.arange(4)[:, None] == 1, np.nan, Y)
    whole = model_of(L.Gaussian(L.PerDatum([0.1, 7.0, 0.3, 0.4], new=0.0)))
    data = ig.Data(X, y)
    values = jax.jit(lambda m: [f(m, data) for f in (ig.elbo, ig.collapsed_elbo, ig.log_evidence)])
    np.testing.assert_allclose(values(known), values(whole), rtol=1e-12)
    two = ig.SparseGP(ig.priors.Independent(ig.kernels.Matern52(), num=2), ig.features.InducingPoints(X[:2]))
    each = ig.Model(two, L.PerOutput([known.likelihood, L.Gaussian(0.1)]))
    checked_data(each, (X, np.concatenate([y, Y], axis=1)), every_output=True)


@general
def test_trials_of_each_datum(name):
    y = np.array([2.0, 5.0, 9.0, np.nan])
    likelihood = L.Binomial(L.PerDatum([2, 5, 9, 1], new=4))
    likelihood.check(y[:, None], index=np.arange(4))
    with pytest.raises(ValueError, match=r"the number of trials, 1 to 9, got 2.0 \(2 of 3 labels"):
        OBJECTIVES[name](model_of(likelihood), ig.Data(X, y, index=[3, 0, 2, 1]))


def test_trials_of_each_output():
    y = np.array([[2.0, 5.0], [1.0, 0.0]])
    L.Binomial([2, 5]).check(y)
    with pytest.raises(ValueError, match=r"2 to 5, got 5.0 \(1 of 4"):
        L.Binomial([2, 5]).check(y[:, ::-1])
    both = L.Binomial(L.PerDatum([[2, 5], [1, 0], [9, 9]], new=4))
    both.check(y, index=jnp.array([0, 1]))
    with pytest.raises(ValueError, match=r"got 2.0 \(2 of 4"):
        both.check(y, index=np.array([1, 0]))
    apart = L.PerOutput([L.Binomial(L.PerDatum([2, 1], new=4)), L.Binomial(L.PerDatum([5, 0], new=4))])
    apart.check(y, index=np.array([0, 1]))
    with pytest.raises(ValueError, match=r"PerOutput, output 0, must .* got 2.0"):
        apart.check(y, index=np.array([1, 0]))


def test_traced_data_are_not_looked_at():
    """Values that only the compiled program knows cannot be refused; concrete ones can, under jit too."""
    model, bad = model_of(L.Bernoulli()), jnp.asarray([0.0, 1.0, 2.0, 0.0])
    compiled = eqx.filter_jit(lambda m, y: ig.elbo(m, (X, y)))
    assert np.isfinite(compiled(model, bad))
    data = ig.Data(X, bad)
    with pytest.raises(ValueError, match=r"must be 0 or 1, got 2\.0"):
        eqx.filter_jit(lambda m: ig.elbo(m, data))(model)
    known = model_of(L.Gaussian(L.PerDatum([0.1, 0.2, 0.3, 0.4], new=0.1)))
    rows = jax.jit(lambda i: ig.elbo(known, data.rows(i)))(jnp.array([3, 0]))
    np.testing.assert_allclose(rows, ig.elbo(known, data.rows(jnp.array([3, 0]))), rtol=1e-12)


def test_rows_without_labels_do_not_weigh_in_global_importance_weighting():
    """The latent variable of a row without labels has no say: the bound is the same whatever its q(h), for each key."""
    data = ig.Data(X, np.where(np.arange(4)[:, None] == 3, np.nan, Y))

    @jax.jit
    def bound(mean):
        latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(mean, scale=0.6))
        model = ig.Model([latent, ig.BayesianDense(2, 1, scale=0.3)], L.Gaussian(0.2))
        return ig.iw_elbo_global(model, data, key=jax.random.key(0), importance=4)

    mean = 0.1 * jnp.ones((4, 1))
    assert bound(mean) == bound(mean.at[3].set(5.0))
    assert bound(mean) != bound(mean.at[2].set(5.0))


def test_counts_may_be_integers_of_any_kind():
    for value in (3, np.int64(3), np.int32(3)):
        check_counts(samples=value)
    for bad in (0, np.int64(0), 2.0, np.float64(2.0), "2"):
        with pytest.raises(ValueError, match="samples must be an integer of at least 1, got"):
            check_counts(samples=bad)


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: ig.elbo(model_of(L.Gaussian()), (X, Y), num_data=0), "num_data must be an integer of at least 1"),
        (lambda: ig.elbo(model_of(L.Gaussian()), (X, Y), beta=-1.0), "beta must be 0 or more"),
        (lambda: ig.Data(None, Y, index=[0.5, 1, 2, 3]), "index must hold whole numbers"),
        (lambda: ig.Data(None, Y, index=[True, False, True, True]), "index must hold whole numbers"),
        (lambda: L.Ordinal([]), "one number or more"),
    ],
)  # fmt: skip
def test_numbers_that_mean_nothing(build, message):
    with pytest.raises(ValueError, match=message):
        build()


MODEL = model_of(L.Gaussian())
POINTS = ig.features.InducingPoints(X[:2])
SE = ig.kernels.SquaredExponential()
WRONG = {
    "an integer for a key": (lambda: ig.fit(MODEL, (X, Y), key=0, progress=False), "key must be a random key .* got 0"),
    "of a draw": (lambda: MODEL.draw(1), "key must be a random key .* got 1"),
    "of samples": (lambda: MODEL.predict(X).sample(2), "key must be a random key .* got 2"),
    "half a sample": (lambda: MODEL.predict(X).sample(KEY, 2.5), "shape must be a number of samples .* got 2.5"),
    "no number of samples": (lambda: MODEL.posterior(X).sample(KEY, -1), "shape must be a number of samples .* got -1"),
    "of a picture": (lambda: ig.report.plot_posterior(MODEL, (X, Y), key=3), "key must be a random key .* got 3"),
    "half a draw": (lambda: ig.report.plot_posterior(MODEL, (X, Y), draws=1.5), "draws must be a whole number .* 1.5"),
    "half a column": (lambda: ig.kernels.ActiveDims(ig.kernels.Matern52(), (0.5,)), "dims must be .* got .0.5"),
    "a huge number": (lambda: ig.Data([10**400, 1], [1, 2]), "x has a number in column 0 that float64 cannot hold"),
    "a root by name": (
        lambda: ig.SparseGP(ig.GP(ig.kernels.Matern52()), POINTS, root="diag"), "root must be .* numbers, got 'diag'"
    ),
    "a mean by name": (
        lambda: ig.SparseGP(ig.GP(ig.kernels.Matern52()), POINTS, mean="zero"), "mean must be .* numbers, got 'zero'"
    ),
    "jitter in words": (
        lambda: ig.SparseGP(ig.GP(ig.kernels.Matern52()), POINTS, jitter="small"), "jitter must be 0 or .* got 'small'"
    ),
    "several quantiles": (lambda: MODEL.predict(X).quantile([0.1, 0.9]), r"q must be one number, got shape \(2,\)"),
    "a level of several": (lambda: MODEL.predict(X).interval(np.ones(3)), "level must be one number, got shape"),
    "a level in a list": (lambda: MODEL.posterior(X).interval([[0.5], []]), "level must be an array of numbers"),
    "a level in percent": (lambda: ig.report.effect(MODEL, X, 0, level=95), "level must lie strictly between 0 and 1"),
    "a seed of text": (lambda: ig.report.relevance(MODEL, X, seed="a"), "seed must be a whole number, 0 or more"),
    "bounds without rows": (
        lambda: L.Censored(L.Exponential(), below=2.0), r"Censored.below must have shape \[N\] or \[N, 1\], got \[\]"
    ),
    "half a component": (
        lambda: ig.kernels.SpectralMixture.from_data(X, Y, num=2.5), "num must be an integer of at least 1, got 2.5"
    ),
    "a number for a folder": (lambda: ig.predict_files(MODEL, "a.csv", 3), "folder must be a string or a pathlib.Path"),
    "text labels": (lambda: MODEL.predict(X[:2]).log_prob(["a", "b"]), "y has .* in column 0, which is not a number"),
    "a result on disk": (
        lambda: ig.save("model.ig", ig.FitResult(MODEL, None, "", "adam", 0.0)), "got FitResult; save result.model"
    ),
    "a likelihood not called": (lambda: ig.Model(MODEL.layers, L.Gaussian), "got the class Gaussian"),
    "points alone": (lambda: ig.SparseGP(ig.GP(ig.kernels.Matern52()), np.zeros((3, 1))), "InducingPoints"),
    "points in a vector": (lambda: ig.features.InducingPoints([0.0, 1.0]), r"pass\s+Z\[:, None\]"),
    "several variances": (lambda: ig.kernels.Matern52(variance=[1.0, 2.0]), r"must be one number, got shape \[2\]"),
    "of k-means": (lambda: ig.initialise.kmeans(X, 2, key=3), "key must be a random key .* got 3"),
    "no points": (lambda: ig.features.InducingPoints(np.zeros((0, 1))), "Z has no rows"),
    "parts to freeze": (lambda: ig.fit(MODEL, (X, Y), freeze=MODEL.layers[0].features), "freeze must be a function"),
    "many objectives": (
        lambda: ig.fit(MODEL, (X, Y), objective=lambda m, d: d.y, progress=False), "must be one number, got shape"
    ),
    "many priors": (
        lambda: ig.fit(MODEL, (X, Y), log_prior=lambda m: m.layers[0].mean, progress=False), "log_prior.*got shape"
    ),
    "an objective of one argument": (
        lambda: ig.fit(MODEL, (X, Y), objective=abs, progress=False), r"objective must be callable as objective\(model"
    ),
    "a mean for a prior": (
        lambda: ig.fit(MODEL, (X, Y), log_prior=ig.means.Zero(), progress=False), r"called as log_prior\(model\), which"
    ),
    "a key for a number": (lambda: ig.fit(MODEL, (X, Y), patience=KEY), "patience must be a whole number"),
    "a key for a count": (lambda: ig.elbo(MODEL, (X, Y), num_data=KEY), "num_data must be an integer"),
    "rows for an index": (lambda: MODEL.predict(X[:2], index=[[0], [0, 1]]), "index must hold one whole number for"),
    "no path": (lambda: ig.save("", MODEL), "path is empty"),
    "a bar of rows": (lambda: ig.fit(MODEL, (X, Y), progress=X), "progress must be True, False or a label"),
    "a method in an array": (lambda: ig.fit(MODEL, (X, Y), method=np.ones(3)), "method must be one of"),
    "a name for a function": (lambda: ig.kernels.Warped(SE, "tanh"), "Warped.function must be a function, got 'tanh'"),
    "a kernel for a function": (lambda: ig.kernels.Warped(SE, SE), "Warped.function must be a function, got a Squared"),
    "a class for a link": (lambda: L.HeteroscedasticGaussian(L.Gaussian), "HeteroscedasticGaussian.link must be"),
    "a shape for a number": (lambda: L.StudentT(jax.ShapeDtypeStruct((3,), float)), "StudentT.df must be numbers"),
    "several keys": (lambda: MODEL.draw(jax.random.split(KEY)), "key must be a random key"),
    "keys for labels": (lambda: ig.Data(X, KEY), "y must be an array of numbers, got random keys"),
    "a kernel and a mean": (lambda: SE + ig.means.Zero(), "operand of a kernel must be a kernel"),
    "a mean and a kernel": (lambda: ig.means.Zero() + SE, "operand of a mean must be a mean or a number"),
    "a kernel and a list": (lambda: SE * [1.0], "operand of a kernel must be a kernel"),
    "a kernel less than none": (lambda: SE + -0.5, "operand of a kernel must be a kernel or a positive number"),
    "a variance that is 0 to the compiler": (lambda: L.Gaussian(1e-320), "must be positive, got 1e-320"),
    "a variance at the limit": (lambda: L.Gaussian(1e308), r"must be positive, got 1e\+308"),
    "a matrix of variances": (lambda: L.Gaussian(np.ones((3, 1))), r"Gaussian.variance must be one number, or one for"),
    "known noise of one": (lambda: L.PerDatum(3.0, 1.0), r"PerDatum.values must have shape \[N\] or \[N, P\], got"),
    "a datum without a number": (lambda: ig.Data(X, index=[1e300, 0, 1, 2]), r"index holds 1e\+300"),
    "a file of points": (lambda: ig.kernels.ActiveDims(SE, sys.stdout), "dims must be"),
    "a frame and a kernel": (lambda: SE * pd.DataFrame({"a": [1.0]}), "operand of a kernel must be a kernel"),
    "several conditions": (lambda: ig.priors.ExactGP("a", X, Y, 0.1), "prior must be a prior.* got 'a'"),
    "noise by name": (lambda: ig.priors.ExactGP(MODEL.layers[0].prior, X, Y, "a"), "noise_variance must be an array"),
    "an encoder of a matrix": (lambda: ig.layers.PerDatumEncoder(X, full=X), "full must be True or False"),
    "parts that are one": (lambda: ig.load("model.ig", parts=3), "parts must be a list of classes"),
    "complex quantiles": (lambda: MODEL.predict(X).quantile(1j), "q must be an array of numbers"),
    "a step of a vector": (lambda: ig.natural_gradient_step(MODEL, (X, Y), X), "gamma must be one number"),
    "an object for a number": (lambda: ig.kernels.Matern52(object()), "Matern52.lengthscale must be numbers, got a ob"),
    "several kernels of columns": (
        lambda: ig.kernels.ActiveDims([SE], (0,)), r"ActiveDims.kernel must be a kernel.* got \[SquaredExp"
    ),
    "a number for a mean": (lambda: ig.means.Sum(ig.means.Zero(), 2.5), "Sum.second must be a mean.* got 2.5"),
    "a column by name": (
        lambda: ig.kernels.ChangePoint([SE, SE], [0.0], dim="a"), "ChangePoint.dim must be a whole number, got 'a'"
    ),
    "a huge parameter": (lambda: ig.kernels.Matern52(10**400), "Matern52.lengthscale must be numbers, got a number"),
    "a huge long double": (
        lambda: ig.kernels.Matern52(np.ldexp(np.longdouble(1), 2000)), "Matern52.lengthscale must be positive, got inf"
    ),
    "a column of words": (
        lambda: ig.kernels.Matern52(pl.Series(["a"])), "Matern52.lengthscale must be numbers, got an array of dtype"
    ),
    "a column with gaps": (
        lambda: ig.kernels.Matern52(pl.Series([None, 1.0])), "Matern52.lengthscale must be positive, got .nan"
    ),
    "matrices for points": (
        lambda: ig.kernels.Matern52()(X, X), r"x and y must be points .* for matrices of points use gram\(X, X2\)"
    ),
    "one row for a point": (lambda: (SE + SE)(X[:1], X[:1]), r"for matrices of points use gram\(X, X2\)"),
    "scales of words": (lambda: ig.initialise.scales("a", (X, Y)), "model must be an ig.Model, got str"),
    "scales for words": (lambda: ig.initialise.scales(MODEL, "a"), r"data must be a pair \(X, y\) .* got str"),
    "points of no kernel": (
        lambda: ig.initialise.greedy_variance("a", X, 2), "kernel must be a kernel, such as .* got 'a'"
    ),
    "points by name": (lambda: ig.initialise.greedy_variance(SE, X, "2"), "M must be a whole number .* got '2'"),
    "a kernel for a prior": (lambda: ig.priors.ExactGP(SE, X, Y, 0.1), "prior must be a prior.* got a SquaredExpon"),
    "no labels to condition on": (lambda: ig.priors.ExactGP(ig.GP(SE), X, None, 0.1), "inputs X and labels y; got"),
    "too many outputs": (lambda: ig.BayesianDense(1, 2**53), "num_outputs must be at most 2147483647, got 900719925"),
    "too many latent dimensions": (lambda: ig.LatentVariable(2**53), "dim must be at most 2147483647, got 90071992"),
    "too many latent functions": (
        lambda: ig.priors.Independent(SE, num=2**53), "num must be at most 2147483647, got 90071992"
    ),
    "too many draws": (lambda: ig.elbo(MODEL, (X, Y), samples=2**53), "samples must be at most 2147483647, got 9007"),
    "a link with negative values": (
        lambda: L.HeteroscedasticGaussian(jnp.tanh), "link must be a function with positive values, got -0.76"
    ),
    "a degree beyond all numbers": (lambda: ig.kernels.Polynomial(2**53), "degree must be a whole number from 1 to"),
    "a label beyond its square": (lambda: MODEL.predict(X[:1]).log_prob([1e308]), r"y has 1e\+308, whose square is"),
    "keys for an index": (lambda: ig.Data(X, index=jax.random.split(KEY, 4)), "index must hold whole numbers.* got an"),
    "keys for columns": (lambda: ig.features.InducingDerivatives(X[:2], KEY), "dims must hold columns"),
    "columns without a variance": (
        lambda: ig.deep_gp(np.full((4, 1), 1e308), L.Gaussian(), num_inducing=2), "X has a column whose variance"
    ),
    "a huge mean": (lambda: ig.GP(SE, 10**400), "mean: Constant.value must be numbers, got a number too large"),
    "a huge box": (lambda: ig.kernels.HilbertSpace(SE, 10**400, 3), "box must be pairs of numbers"),
    "ragged numbers": (lambda: ig.kernels.HilbertSpace(SE, [(0, 1)], [[1.0], [1.0, 2.0]]), "num must be a whole"),
    "a number for latents": (lambda: ig.priors.LMC([[1.0]], jnp.asarray(1.0)), "latents"),
    "steps in lists": (lambda: ig.fit(MODEL, (X, Y), steps=[[1.0], [1.0, 2.0]]), "steps must be a whole number"),
    "too many classes": (lambda: L.Softmax(2**53), "num_classes must be a whole number from 2 to 2147483647"),
    "too many frequencies": (lambda: ig.features.Fourier(-1.0, 1.0, 2**53), "Fourier.num must be at most 2147483647"),
    "too many samples": (lambda: MODEL.predict(X).sample(KEY, 2**50), "shape must hold .* take fewer samples at"),
    "too many rows": (
        lambda: MODEL.posterior(np.zeros((2_000_000, 1)), full_cov=True), "covariance of all values.* GB"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_arguments_of_another_kind(name, monkeypatch):
    """As users meet them, without the checks of signatures that tests have."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    build, message = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=message):
        build()


def test_numbers_in_other_containers_are_parameters():
    for value in (pl.Series([1.0, 2.0]), pd.Series([1, 2]), np.asarray([1, 2], np.longdouble), (1, 2.0)):
        lengthscale = ig.kernels.Matern52(value).lengthscale
        assert lengthscale.dtype == jnp.zeros(()).dtype and lengthscale.tolist() == [1.0, 2.0]
    assert ig.kernels.Matern52(np.longdouble(1.5)).lengthscale == 1.5


def test_what_does_not_fit_into_memory_is_refused_before_it_is_allocated(monkeypatch):
    """With 32 GB: 200,000 rows need a covariance of 320, and 2³¹ samples of six labels at least 103."""
    monkeypatch.setattr(memory, "machine_memory", lambda: 32e9)
    with pytest.raises(ValueError, match=r"200000, 200000\] needs 320 GB, more than the 32 GB .* take fewer rows"):
        MODEL.posterior(np.zeros((200_000, 1)), full_cov=True)
    six = np.linspace(-1.0, 1.0, 6)[:, None]
    for predicted in (MODEL.predict(six), MODEL.posterior(six)):
        with pytest.raises(ValueError, match=r"shape=2147483647 asks .* more than the 32 GB .* take fewer at"):
            predicted.sample(KEY, 2**31 - 1)
        with pytest.raises(ValueError, match="shape must hold at most 2147483647, got 2147483648"):
            predicted.sample(KEY, 2**31)


def test_a_skip_whose_layers_do_not_fit_says_which():
    dense = ig.BayesianDense
    with pytest.raises(ValueError, match=r"layers\[0\], a Skip: layers\[0\], a BayesianDense, gives 2 columns"):
        ig.Model([ig.Skip([dense(1, 2), dense(3, 2)]), dense(3, 1)], ig.likelihoods.Gaussian())


def test_a_deterministic_layer_may_compare():
    model = ig.Model([ig.Deterministic(lambda v: v > 0), ig.BayesianDense(1, 1)], ig.likelihoods.Gaussian())
    assert model.predict([[-1.0], [1.0]]).mean.shape == (2, 1)


def test_beta_and_num_data_that_are_no_numbers(unchecked):
    model = ig.Model(ig.BayesianDense(1, 1), ig.likelihoods.Gaussian())
    for name in ("beta", "num_data"):
        with pytest.raises((TypeError, ValueError), match=name):
            ig.elbo(model, ([1.0], [2.0]), **{name: "1"})
