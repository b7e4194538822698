"""Gradient boosting and scikit-learn's exact GP, each with default settings."""

import time
import warnings

import numpy as np
from protocol import serve
from race import load

NORMAL_975 = 1.959963984540054


def exact(a: dict) -> dict:
    """scikit-learn's GP with a constant × Matérn 5/2 with one lengthscale per column + white noise."""
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    kernel = ConstantKernel() * Matern(np.ones(a["X"].shape[1]), nu=2.5)
    if "classes" in a:
        model = GaussianProcessClassifier(kernel).fit(a["X"], a["y"])
        return {"probabilities": model.predict_proba(a["Xtest"]).tolist()}
    model = GaussianProcessRegressor(kernel + WhiteKernel(), normalize_y=True).fit(a["X"], a["y"])
    mean, deviation = model.predict(a["Xtest"], return_std=True)
    return {"mean": mean.tolist(), "deviation": deviation.tolist()}


def hist(a: dict) -> dict:
    """Gradient boosting of scikit-learn: the mean, and no density."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if "classes" in a:
        model = HistGradientBoostingClassifier(random_state=0).fit(a["X"], a["y"])
        return {"probabilities": model.predict_proba(a["Xtest"]).tolist()}
    model = HistGradientBoostingRegressor(random_state=0).fit(a["X"], a["y"])
    return {"mean": model.predict(a["Xtest"]).tolist()}


def lightgbm(a: dict) -> dict:
    """The mean, and a normal density with the width between two quantile models."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    if "classes" in a:
        model = LGBMClassifier(verbose=-1, random_state=0).fit(a["X"], a["y"])
        return {"probabilities": model.predict_proba(a["Xtest"]).tolist()}
    model = LGBMRegressor(verbose=-1, random_state=0).fit(a["X"], a["y"])
    lower, upper = (
        LGBMRegressor(objective="quantile", alpha=alpha, verbose=-1, random_state=0)
        .fit(a["X"], a["y"])
        .predict(a["Xtest"])
        for alpha in (0.025, 0.975)
    )
    deviation = np.maximum((upper - lower) / (2.0 * NORMAL_975), 1e-3)  # quantile models may cross
    answer = {"mean": model.predict(a["Xtest"]), "deviation": deviation, "lower": lower, "upper": upper}
    return {name: value.tolist() for name, value in answer.items()}


def ngboost(a: dict) -> dict:
    """A normal density, of which mean and deviation are boosted."""
    from ngboost import NGBClassifier, NGBRegressor
    from ngboost.distns import k_categorical

    if "classes" in a:
        model = NGBClassifier(Dist=k_categorical(int(a["classes"])), verbose=False, random_state=0)
        return {"probabilities": model.fit(a["X"], a["y"].astype(int)).predict_proba(a["Xtest"]).tolist()}
    pred = NGBRegressor(verbose=False, random_state=0).fit(a["X"], a["y"]).pred_dist(a["Xtest"])
    return {"mean": pred.params["loc"].tolist(), "deviation": pred.params["scale"].tolist()}


METHODS = {"sklearn-gp": exact, "hist": hist, "lightgbm": lightgbm, "ngboost": ngboost}


def run(path: str, method: str) -> dict:
    """Fit one split and predict its test rows."""
    a = load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        answer = METHODS[method](a)
        return answer | {"seconds": time.perf_counter() - started}


if __name__ == "__main__":
    serve(None, {"run": run})
