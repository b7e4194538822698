"""This library's estimators with default settings."""

import os
import time

os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)  # compilation is a part of what is measured

import numpy as np
from protocol import serve
from race import load

import inducing as ig
from inducing.sklearn import GPClassifier, GPRegressor


def run(path: str, method: str, seconds: float | None = None) -> dict:
    """Fit one split and predict its test rows; the first fit of a process includes compilation."""
    a = load(path)
    started = time.perf_counter()
    if "classes" in a:
        estimator = GPClassifier(seconds=seconds).fit(a["X"], a["y"])
        answer = {"probabilities": estimator.predict_proba(a["Xtest"]).tolist()}
        answer["seconds"] = time.perf_counter() - started
    else:
        estimator = GPRegressor(seconds=seconds).fit(a["X"], a["y"])
        with estimator.computing() as model:
            pred = model.predict(a["Xtest"])
            ends = np.stack([pred.mean, *pred.interval(0.95)])[..., 0]
            answer = dict(zip(("mean", "lower", "upper"), ends.tolist(), strict=True))
            answer["seconds"] = time.perf_counter() - started
            answer["log_density"] = -ig.scores.log_score(pred, a["ytest"])
    return answer | {"message": estimator.result_.message}


if __name__ == "__main__":
    serve(None, {"run": run})
