"""Likelihoods other than Gaussian noise on small real data, by cross-validation with the defaults of `ig.fit`.

    python benchmarks/classics.py

banana: accuracy and log-likelihood of a Bernoulli model on both of its sets (400 and 5,300 rows). coal: log-likelihood
of counts held out, a changing Poisson rate against a constant one. mcycle: noise that depends on the input against
constant noise. Results are merged into `benchmarks/results/fit.json`.
"""

import datetime
import json
import os
from pathlib import Path

import jax
import numpy as np
from fit import RESULTS
from speed import ROOT

import inducing as ig

FOLDS = 5


def load(name: str) -> dict[str, np.ndarray]:
    """The arrays of a data set."""
    with np.load(Path(os.environ.get("INDUCING_DATA", ROOT.parent / "shared" / "data")) / f"{name}.npz") as file:
        return {k: np.asarray(file[k], float) for k in file.files}


def model(prior: ig.priors.AbstractPrior, X: np.ndarray, likelihood: ig.likelihoods.AbstractLikelihood, M: int):
    """A sparse GP at k-means inducing points."""
    Z = ig.initialise.kmeans(X, M, key=jax.random.key(0))
    return ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(Z)), likelihood)


def held_out(make, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The log density of each label under a model that has not seen its fold."""
    fold = np.random.default_rng(0).permutation(len(X)) % FOLDS
    out = np.zeros(len(X))
    for f in range(FOLDS):
        seen = fold != f
        result = ig.fit(make(X[seen]), (X[seen], y[seen]), progress=False)
        out[~seen] = np.asarray(result.model.predict(X[~seen]).log_prob(y[~seen])).reshape(-1)
    return out


def banana() -> dict:
    """Binary labels in two dimensions. A label is got right if its probability is more than one half."""
    a, out = load("banana"), {}
    for name in ("", "_large"):
        X, y = a["X" + name], (a["Y" + name] > 0).astype(float)
        ll = held_out(lambda x: model(ig.GP(ig.kernels.SquaredExponential()), x, ig.likelihoods.Bernoulli(), 64), X, y)
        out |= {f"accuracy of {len(X)}": float(np.mean(ll > np.log(0.5))), f"ll of {len(X)}": float(ll.mean())}
    return out


def coal() -> dict:
    """Counts in bins: a rate that changes against one that does not."""
    a = load("coal")
    X = (a["X"] - a["X"].mean()) / a["X"].std()
    rate = held_out(lambda x: model(ig.GP(ig.kernels.Matern52()), x, ig.likelihoods.Poisson(), 30), X, a["Y"])
    constant = held_out(lambda x: model(ig.GP(ig.kernels.Constant()), x, ig.likelihoods.Poisson(), 1), X, a["Y"])
    return _compared(rate, constant)


def mcycle() -> dict:
    """Head accelerations: noise that depends on time against constant noise."""
    a = load("mcycle")
    X, y = ((v - v.mean()) / v.std() for v in (a["X"], a["Y"]))
    kernels = [ig.kernels.Matern52(), ig.kernels.Matern52()]

    def changing(x):
        return model(ig.priors.Independent(kernels), x, ig.likelihoods.HeteroscedasticGaussian(), 30)

    def constant(x):
        return model(ig.GP(ig.kernels.Matern52()), x, ig.likelihoods.Gaussian(), 30)

    return _compared(held_out(changing, X, y), held_out(constant, X, y))


def _compared(ll: np.ndarray, plain: np.ndarray) -> dict:
    gain = ll - plain
    return {
        "ll": float(ll.mean()),
        "plain": float(plain.mean()),
        "gain": float(gain.mean()),
        "standard error": float(gain.std() / np.sqrt(len(gain))),
    }


def main() -> None:
    """Run all, print, merge into the results."""
    jax.config.update("jax_enable_x64", True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for run in (banana, coal, mcycle):
        entry = run()
        print(run.__name__, ", ".join(f"{k} {v:.4g}" for k, v in entry.items()), flush=True)
        entry["date"] = datetime.date.today().isoformat()
        results.setdefault("classics", {})[run.__name__] = entry
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
