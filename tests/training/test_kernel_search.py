"""What the search for a kernel concludes from few rows."""

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
