"""Good calls of functions: data, bounds, training, predictions, scores, streams, tables, estimators and files."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
from good_calls import (
    CLASSES,
    DEEP,
    FOURIER,
    KEY,
    M52,
    MODEL,
    POINTS,
    PRIOR,
    X2,
    Call,
    F,
    K,
    L,
    X,
    Y,
    ig,
    kernels,
    priors,
    some_features,
    some_likelihoods,
    some_priors,
    use_data,
    use_model,
)

from inducing.inference.joint import JointPredictive

BOTH = {"model": MODEL, "data": (X, Y)}
ODD = np.arange(6) % 2
COUNTS = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 2.0])[:, None]
LATENT = ig.Model(
    [
        ig.LatentVariable(1, ig.layers.PerDatumEncoder(X)),
        ig.SparseGP(ig.GP(K.SquaredExponential()), F.InducingPoints(X[::2])),
    ],
    L.Gaussian(0.1),
)


def functions(folder: str) -> dict[str, Call]:
    """Calls of functions of models and data."""
    P, Q = MODEL.predict(X), MODEL.posterior(X)
    exact = priors.ExactGP(PRIOR, X, Y, 0.1)
    options = {"objective": ig.elbo, "steps": 1, "method": "auto", "batch_size": None, "key": KEY, "progress": False}
    options |= {"freeze": None, "log_prior": None, "held_out": None, "patience": None, "starts": 1, "checkpoint": None}
    return {
        "Data": Call(
            ig.Data,
            {"x": X, "y": Y, "mask": np.ones((6, 1), bool), "index": np.arange(6), "weight": np.ones(6)},
            use_data,
            6.0,
        ),
        "elbo": Call(
            ig.elbo, BOTH | {"key": KEY, "samples": 1, "importance": 1, "beta": 1.0, "num_data": 6}, None, 3.0
        ),
        "iw_elbo_global": Call(ig.iw_elbo_global, {"model": DEEP, "data": (X, Y), "key": KEY, "importance": 2}),
        "collapsed_elbo": Call(ig.collapsed_elbo, BOTH),
        "collapse": Call(ig.collapse, BOTH),
        "log_evidence": Call(ig.log_evidence, BOTH),
        "PrecomputedElbo": Call(ig.PrecomputedElbo, BOTH | {"model": FOURIER}),
        "natural_gradient_step": Call(ig.natural_gradient_step, BOTH | {"gamma": 1.0, "key": KEY}),
        "fit": Call(ig.fit, BOTH | options, None, 2.0),
        "predict": Call(
            MODEL.predict,
            {"X": X, "full_cov": False, "output_cov": False, "key": KEY, "samples": None, "index": None},
            lambda p: (p.mean, p.variance),
            4.0,
        ),
        "posterior": Call(
            MODEL.posterior,
            {"X": X, "full_cov": False, "output_cov": False, "key": KEY, "samples": None},
            lambda p: (p.mean, p.variance),
            3.0,
        ),
        "draw": Call(MODEL.draw, {"key": KEY, "num_features": 16}, lambda f: f(X)),
        "sample": Call(P.sample, {"key": KEY, "shape": (2,)}),
        "posterior.sample": Call(Q.sample, {"key": KEY, "shape": 2}),
        "log_prob": Call(P.log_prob, {"y": Y}),
        "quantile": Call(P.quantile, {"q": 0.3}),
        "cdf": Call(P.cdf, {"y": Y}),
        "ExactGP.predict": Call(exact.predict, {"X": X}, lambda p: p.mean),
        "ExactGP.log_prob": Call(exact.log_prob, {"X": X, "y": Y, "noise_variance": 0.1}),
        "ExactGP.sample": Call(exact.sample, {"key": KEY, "X": X, "shape": 2}),
        "kmeans": Call(ig.initialise.kmeans, {"X": X, "M": 2, "key": KEY}),
        "random_subset": Call(ig.initialise.random_subset, {"X": X, "M": 2, "key": KEY}),
        "greedy_variance": Call(ig.initialise.greedy_variance, {"kernel": M52, "X": X, "M": 2}),
        "scales": Call(ig.initialise.scales, BOTH),
        "deep_gp": Call(
            ig.deep_gp,
            {"X": X, "likelihood": L.Gaussian(), "num_layers": 2, "width": None, "num_inducing": 3},
            use_model,
            2.0,
        ),
        "summary": Call(ig.summary, {"module": MODEL}),
        "save": Call(ig.save, {"path": f"{folder}/model.ig", "model": MODEL}),
        "load": Call(ig.load, {"path": f"{folder}/kept.ig", "parts": ()}),
    }


def later_functions() -> dict[str, Call]:
    """Calls of bounds, online learning, growing, sampling, and of what predictions answer."""
    P, J, C = MODEL.predict(X), MODEL.predict(X, full_cov=True), CLASSES.predict(X)
    assert isinstance(J, JointPredictive)
    labels = {"y": Y, "weight": np.ones(6)}
    drawn = ig.sample_posterior(MODEL, (X, Y), warmup=2, samples=2, chains=1)
    latent = {"model": LATENT, "data": ig.Data(None, Y)}
    return {
        "weights": Call(ig.elbo, {"model": MODEL, "data": ig.Data(X, Y, weight=np.arange(6.0)), "num_data": 6}),
        "evidence_upper_bound": Call(ig.evidence_upper_bound, BOTH),
        "gplvm_elbo": Call(ig.gplvm_elbo, latent),
        "gplvm_collapse": Call(ig.gplvm_collapse, latent),
        "update": Call(
            ig.update, BOTH | {"memory": 1.0, "features": POINTS, "adapt": False}, lambda m: m.predict(X).mean, 3.0
        ),
        "update(adapt)": Call(ig.update, BOTH | {"adapt": True, "steps": 1, "gamma": 1.0}, None, 0.5),
        "grow": Call(
            ig.grow,
            BOTH | {"most": 3, "gain": 0.1, "seconds": 5.0, "progress": False, "key": KEY, "checkpoint": None},
            None,
            0.5,
        ),
        "sample_posterior": Call(
            ig.sample_posterior,
            BOTH
            | {"priors": (), "over_u": False, "objective": ig.collapsed_elbo, "freeze": lambda m: m.layers[0].prior}
            | {"warmup": 2, "samples": 2, "chains": 1, "target_accept": 0.8, "key": KEY, "progress": False},
            None,
            0.5,
        ),
        "PosteriorSamples.predict": Call(drawn.predict, {"X": X, "num": 2}, lambda p: p.mean),
        "PosteriorSamples.model_at": Call(drawn.model_at, {"chain": 0, "sample": 1}, lambda m: m.predict(X).mean),
        "crps": Call(ig.scores.crps, {"pred": P} | labels),
        "log_score": Call(ig.scores.log_score, {"pred": P} | labels),
        "interval_score": Call(ig.scores.interval_score, {"pred": P, "level": 0.9} | labels),
        "brier": Call(ig.scores.brier, {"pred": C} | labels | {"y": COUNTS}),
        "calibration_error": Call(ig.scores.calibration_error, {"pred": C} | labels | {"y": COUNTS}),
        "share_below": Call(ig.scores.share_below, {"pred": P, "level": np.array([0.1, 0.5])} | labels),
        "interval": Call(P.interval, {"level": 0.9}),
        "predictive.crps": Call(P.crps, {"y": Y}),
        "posterior.interval": Call(MODEL.posterior(X).interval, {"level": 0.9}),
        "joint.log_prob": Call(J.log_prob, {"y": Y, "key": KEY, "samples": None}),
        "joint.estimate": Call(J.estimate, {"y": Y, "key": KEY, "samples": None}, lambda e: e.value),
        "joint.sample": Call(J.sample, {"key": KEY, "shape": 2}),
        "joint.quantile": Call(J.quantile, {"q": 0.3}),
        "reconstruct": Call(
            LATENT.reconstruct, {"data": ig.Data(None, Y), "key": KEY, "samples": 2}, lambda p: p.mean, 0.5
        ),
        "relevance": Call(ig.report.relevance, {"model": MODEL, "X": X, "names": ["a"], "num": 8, "seed": 0}),
        "effect": Call(
            ig.report.effect,
            {"model": MODEL, "X": X, "column": 0, "names": ["a"], "values": None}
            | {"points": 3, "num": 4, "level": 0.9, "seed": 0},
        ),
        "Partition.freeze": Call(
            ig.fit, BOTH | {"freeze": lambda m: m.layers[0].features, "steps": 1, "progress": False}
        ),
    }


def streams(folder: str) -> dict[str, Call]:
    """Calls of streams and of what takes them."""
    place = Path(folder, "rows")
    place.mkdir(exist_ok=True)
    np.savetxt(place / "a.csv", np.hstack([X2, Y, np.ones((6, 1))]), delimiter=",", header="a,b,y,w", comments="")
    one = Path(folder, "inputs")
    one.mkdir(exist_ok=True)
    np.savetxt(one / "a.csv", X, delimiter=",", header="a", comments="")
    stream = ig.Stream((X, Y))
    names = {"x": ["a", "b"], "y": "y", "weight": "w", "index": None, "num_data": None, "filesystem": None}
    return {
        "Stream(arrays)": Call(
            ig.Stream, {"source": (X, Y), "window": 8}, lambda s: next(s.batches(2)).x + next(s.batches(2)).y, 2.0
        ),
        "Stream(matrix)": Call(
            ig.Stream,
            {"source": np.hstack([X2, Y]), "x": [0, 1], "y": 2, "weight": None, "index": None},
            lambda s: next(s.batches(2)).x,
        ),
        "Stream(files)": Call(
            ig.Stream, {"source": str(place)} | names | {"window": 8}, lambda s: next(s.batches(2)).x, 3.0
        ),
        "Stream(batches)": Call(
            ig.Stream,
            {"source": [{"a": [1.0, 2.0], "y": [1.0, 2.0]}], "x": "a", "y": "y", "num_data": 2},
            lambda s: next(s.batches(2)).x,
        ),
        "batches": Call(stream.batches, {"batch_size": 2, "seed": 0, "first": 0}, next),
        "fit(stream)": Call(
            ig.fit,
            {"model": MODEL, "data": stream, "batch_size": 2, "steps": 1, "held_out": (X, Y), "progress": False},
        ),
        "collapsed_elbo(stream)": Call(ig.collapsed_elbo, {"model": MODEL, "data": stream}),
        "predict_files": Call(
            ig.predict_files,
            {"model": MODEL, "source": str(one), "folder": f"{folder}/out", "x": ["a"], "level": 0.9}
            | {"filesystem": None},
        ),
    }


def tables(folder: str) -> dict[str, Call]:
    """Calls of models of tables; none where pandas or pyarrow is missing."""
    found: dict[str, Call] = {}
    with contextlib.suppress(ImportError):
        import pandas as pd

        from inducing import tables

        frame = pd.DataFrame({"a": X2[:, 0], "b": list("uvuvuv"), "y": Y[:, 0], "w": np.ones(6)})
        model = tables.TableModel.fit(frame, target="y", weight="w", kernel="matern52", progress=False)
        model.save(f"{folder}/table.ig")
        frame.to_csv(f"{folder}/table.csv", index=False)
        rows = tables.read_table(f"{folder}/table.csv")
        settings: dict[str, Any] = {
            "frame": frame,
            "target": "y",
            "drop": (),
            "categorical": ("b",),
            "weight": "w",
            "test": None,
        }
        settings |= {"likelihood": "gaussian", "kernel": "matern52", "noise": "constant", "num_layers": 1, "seed": 0}
        settings |= {"split_by": None, "date_format": None, "decimal": ".", "seconds": 1.0, "progress": False}
        encoder = {"frame": frame, "drop": ("y",), "categorical": ("b",), "date_format": None, "decimal": "."}
        found |= {
            "TableModel.fit": Call(tables.TableModel.fit, settings, None, 0.5),
            "TableModel.predict": Call(model.predict, {"frame": frame, "strict": True}, None, 2.0),
            "TableModel.evaluate": Call(model.evaluate, {"frame": frame}, None, 2.0),
            "TableModel.report": Call(
                model.report, {"frame": frame, "path": f"{folder}/report.html", "rows": True}, None, 0.2
            ),
            "TableModel.save": Call(model.save, {"path": f"{folder}/again.ig"}),
            "TableModel.load": Call(tables.TableModel.load, {"path": f"{folder}/table.ig"}),
            "Encoder.decide": Call(tables.Encoder.decide, encoder, lambda e: e.encode(frame).X),
            "encode": Call(tables.Encoder.decide(frame, drop=["y"]).encode, {"frame": frame}),
            "read_table": Call(
                tables.read_table,
                {"path": f"{folder}/table.csv", "na": ["-"], "decimal": ".", "delimiter": ",", "encoding": "utf8"},
            ),
            "write_table": Call(tables.write_table, {"path": f"{folder}/out.csv", "table": rows}),
        }
    return found


def estimators(folder: str) -> dict[str, Call]:
    """Calls of estimators; none where scikit-learn is missing. Their bad input is partly scikit-learn's to answer."""
    found: dict[str, Call] = {}
    with contextlib.suppress(ImportError):
        from inducing.sklearn import GPClassifier, GPRegressor

        def regressor(X: Any = X, y: Any = Y[:, 0], sample_weight: Any = None, **settings: Any) -> Any:
            good = {"kernel": M52, "num_inducing": 3, "steps": 1, "progress": False}
            return GPRegressor(**good | settings).fit(X, y, sample_weight)

        def classifier(X: Any = X, y: Any = ODD, sample_weight: Any = None, **settings: Any) -> Any:
            good = {"kernel": M52, "num_inducing": 3, "steps": 1, "progress": False}
            return GPClassifier(**good | settings).fit(X, y, sample_weight)

        one, other = regressor(), classifier()
        one.save(f"{folder}/estimator.ig")
        settings: dict[str, Any] = {
            "kernel": M52,
            "num_inducing": 3,
            "likelihood": None,
            "num_layers": 1,
            "method": "auto",
            "steps": 1,
        }
        settings |= {"seconds": 2.0, "dtype": "float64", "progress": False, "random_state": 0}
        found |= {
            "GPRegressor": Call(regressor, settings | {"noise": "gaussian"}, None, 0.5),
            "GPClassifier": Call(classifier, settings, None, 0.5),
            "GPRegressor.fit": Call(regressor, {"X": X, "y": Y[:, 0], "sample_weight": np.ones(6)}, None, 0.5),
            "predict_interval": Call(one.predict_interval, {"X": X, "level": 0.9}),
            "predict_quantiles": Call(one.predict_quantiles, {"X": X, "quantiles": [0.1, 0.9]}),
            "sample_y": Call(one.sample_y, {"X": X, "n_samples": 2, "random_state": 0}),
            "predict_proba": Call(other.predict_proba, {"X": X}),
            "partial_fit": Call(one.partial_fit, {"X": X, "y": Y[:, 0], "sample_weight": None}),
            "estimator.save": Call(one.save, {"path": f"{folder}/again.ig"}),
            "estimator.load": Call(GPRegressor.load, {"path": f"{folder}/estimator.ig", "parts": ()}),
        }
    return found


def calls(folder: str) -> dict[str, Call]:
    """Every call, by name.

    Args:
        folder: where files may be written.
    """
    ig.save(f"{folder}/kept.ig", MODEL)
    parts = kernels() | some_features() | some_likelihoods() | some_priors()
    return parts | functions(folder) | later_functions() | streams(folder) | tables(folder) | estimators(folder)
