"""What the search for a kernel concludes from few rows."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import inducing as ig
from inducing.training import kernel_search as search
from inducing.training.monitor import History


def test_a_fit_near_its_end_stops_soon():
    X = np.linspace(0.0, 6.0, 60)
    data = ig.Data(X, np.sin(2.0 * X) + 0.1 * np.random.default_rng(0).standard_normal(60))
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0]]))
    options = {"objective": ig.log_evidence, "freeze": lambda m: m.layers[0].features, "progress": False}
    best = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian()), data, **options)
    again = ig.fit(best.model, data, callback=search.once_level(data), initialise=False, **options)
    assert len(again.history.bound) <= 20 and again.bound > best.bound - search.ENOUGH * 60


def test_terms_pay_half_a_nat_for_each_hyperparameter():
    """An additive term of two columns has four hyperparameters."""
    rng = np.random.default_rng(1)
    data = ig.Data(rng.uniform(-1.0, 1.0, (20, 2)), rng.standard_normal(20))
    names = ["Matern52", "Additive"]
    start = search._start(data, ig.likelihoods.Gaussian(), names, 1)

    def tried(candidate, score, bound):
        model = search._opened(start, names, dict.fromkeys(candidate, 1.0))
        history = History(np.zeros(0, int), np.zeros(0), np.zeros(0))
        return search._Tried(score, candidate, ig.FitResult(model, history, "", "lbfgs", bound))

    plain = tried(("Matern52",), -1.0, -50.0)
    for score, bound, wins in ((-1.0, -48.1, False), (-1.0, -47.9, True), (-1.2, -40.0, False), (-0.8, -60.0, True)):
        sum_ = tried(("Matern52", "Additive"), score, bound)
        assert search._best([plain, sum_], names) is (sum_ if wins else plain)


def test_hyperparameters_of_few_rows_are_moderated():
    """Those that more rows could not bring back move to the nearest useful value; the others stay, bit for bit."""
    rng = np.random.default_rng(0)
    data = ig.Data(rng.uniform(size=(3100, 2)), rng.normal(size=3100))
    kernel = ig.kernels.Matern52([1e-6, 0.5], variance=2.0) + ig.kernels.Matern32([0.5, 1e6], variance=1e-9)
    gp = ig.SparseGP(ig.GP(kernel, ig.means.Constant(0.3)), ig.features.InducingPoints(data.x[:1]))
    model = ig.Model(gp, ig.likelihoods.Gaussian(1e-9))
    better = search.moderated(model, data)
    first, second = better.layers[0].prior.kernels[0].terms()
    start = data.x.std(axis=0) * np.sqrt(2)  # of the order of `ig.initialise.scales`
    assert 0.01 < first.lengthscale[0] / start[0] < 1.0 and first.lengthscale[1] == 0.5 and first.variance == 2.0
    assert 1.0 < second.lengthscale[1] / start[1] < 100.0 and 1e-4 < second.variance < 1e-2
    assert 0.005 < better.likelihood.variance < 0.02 and better.layers[0].prior.mean_function.value == 0.3
    few = search.moderated(model, data.rows(jnp.arange(100)))  # the evidence can lower the noise again
    assert few.likelihood.variance == 1e-9
    known = ig.Model(gp, ig.likelihoods.Gaussian(ig.likelihoods.PerDatum(np.full(3100, 1e-9), new=0.0)))
    assert eqx.tree_equal(search.moderated(known, data).likelihood, known.likelihood)
