"""The benchmark scripts, on sizes that take no time: our own side runs, and results become tables."""

import dataclasses
import importlib
import json
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import inducing as ig

ROOT = Path(__file__).resolve().parent.parent / "benchmarks"
MODULES = ("cases", "speed", "fit", "defaults", "tables", "defaults_tables", "scale", "scale_tables")
MODULES += ("protocol", "race", "ours", "fit_ours")


@pytest.fixture(scope="module")
def scripts():
    """The scripts as modules; they find each other by being in one folder."""
    added = [str(ROOT), str(ROOT / "workers")]
    sys.path[:0] = added
    yield {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        sys.modules.pop(name)
    for path in added:
        sys.path.remove(path)


def tiny(scripts, name, **sizes):
    """A case by name, made small, and its arrays, as a worker gets them."""
    cases = scripts["cases"]
    case = next(c for c in cases.CASES if c.name == name)
    case = dataclasses.replace(case, **{"N": 60, "M": 6, "batch": 20, "D": 3, "width": 2, **sizes})
    return dataclasses.asdict(case) | {"jitter": cases.JITTER[case.dtype]}, cases.arrays(case)


@pytest.mark.parametrize("name", ["latent-10", "collapsed-256", "predict-512"])
def test_our_side_of_every_kind_runs(scripts, name):
    task = scripts["ours"].build(*tiny(scripts, name, replicates=2))
    seconds = task.run(2)  # raises if a step was not finite
    assert seconds is None or seconds > 0


def test_the_driver_runs_and_writes_results_and_plot(scripts, tmp_path):
    """Our own worker, in its own process; what was measured at true sizes is left alone."""
    kept = scripts["speed"].RESULTS.read_bytes()
    out = tmp_path / "speed.json"
    cases = ["svgp-bernoulli-128-float32", "lmc-128", "deep-2"]
    results = scripts["speed"].main(["--quick", "--peers", "--cases", *cases, "--out", str(out)])
    assert all("ms" in results["cases"][name]["libraries"]["ours"] for name in cases)
    assert json.loads(out.read_text())["cases"].keys() == set(cases) and out.with_suffix(".png").exists()
    assert "`import inducing` takes" in scripts["tables"].import_line(results)
    assert scripts["speed"].RESULTS.read_bytes() == kept


def test_shared_parameters_mean_what_the_formulas_say(scripts):
    case, a = tiny(scripts, "svgp-gaussian-128-float64")
    task = scripts["ours"].build(case, a)
    rows = a["index"][0]
    X, y = a["X"][rows], a["y"][rows, 0]

    def k(x, z):
        return np.exp(-0.5 * np.sum(((x[:, None] - z[None]) / a["lengthscale"]) ** 2, axis=2))

    L = np.linalg.cholesky(k(a["Z"], a["Z"]) + case["jitter"] * np.eye(case["M"]))
    A = np.linalg.solve(L, k(a["Z"], X))
    m, R = a["mean"][0], a["root"][0]
    mean, variance = A.T @ m, 1.0 - np.sum(A**2, axis=0) + np.sum((R.T @ A) ** 2, axis=0)
    expected = -0.5 * (np.log(2 * np.pi * 0.2) + ((y - mean) ** 2 + variance) / 0.2)
    kl = 0.5 * (np.sum(R**2) + m @ m - case["M"]) - np.sum(np.log(np.diag(R)))
    bound = case["N"] / case["batch"] * expected.sum() - kl
    assert float(task.value()) == pytest.approx(bound, rel=1e-10)
    assert task.run(2) > 0


def test_every_case_counts_operations_that_grow_with_its_sizes(scripts):
    cases = scripts["cases"]
    names = [c.name for c in cases.CASES]
    assert len(set(names)) == len(names)
    for case in cases.CASES:
        assert cases.flops(dataclasses.replace(case, M=2 * case.M)) > 2 * cases.flops(case) > 0


def test_operations_are_those_of_the_compiled_step(scripts):
    """The formula against XLA's own count of the bound and its gradient, which includes sums and exponentials."""
    cases, case = scripts["cases"], None
    for kind in ("svgp-gaussian-512-float64", "lmc-128"):
        case = next(c for c in cases.CASES if c.name == kind)
        shapes = dataclasses.asdict(case) | {"jitter": 1e-7}
        a = cases.arrays(dataclasses.replace(case, N=case.batch))
        model = scripts["ours"].model_of(shapes, a)
        data = ig.Data(a["X"], a["y"])
        free, rest = eqx.partition(model, eqx.is_inexact_array)

        def bound(free, rest=rest, data=data):
            return ig.elbo(eqx.combine(free, rest), data, num_data=20_000)

        counted = jax.jit(jax.value_and_grad(bound)).lower(free).cost_analysis()["flops"]
        assert 0.8 < cases.flops(case) / counted < 1.1


def test_fits_are_scored(scripts, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (80, 1))
    y = np.sin(2 * X) + 0.1 * rng.normal(size=X.shape)
    np.savez(tmp_path / "split.npz", X=X[:60], y=y[:60], Xtest=X[60:], ytest=y[60:])
    scores = scripts["fit_ours"].quality(str(tmp_path / "split.npz"), M=10)
    assert scores["rmse"] < 0.2 and scores["ll"] > 0.2
    assert scores["coverage50"] <= scores["coverage90"] <= scores["coverage95"]


def test_results_become_tables(scripts):
    case = dataclasses.asdict(scripts["cases"].CASES[0])
    entry = {
        "case": case,
        "flops": 1e9,
        "libraries": {"ours": {"ms": 10.0, "compile": 1.0}, "gpjax": {"ms": 25.0, "tuned": 20.0}},
    }
    entry = scripts["speed"].summarise(entry, {"float64": 2e11})
    assert (entry["best"], entry["ratio"], entry["ratio_tuned"]) == ("gpjax", 2.5, 2.0)
    assert entry["fraction"] == pytest.approx(0.5)
    results = {"cases": {case["name"]: entry}}
    table = scripts["tables"].speed_table(results)
    assert "| 10 |" in table and "| 2.50 | 3.0 | 2.00 |" in table
    assert "the aim of 3.0 is missed" in scripts["tables"].behind(results)
    page = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb"
    assert scripts["tables"].replace(page, "x", "new") == "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb"


def test_slopes_are_those_of_the_curve(scripts):
    growth = [c for c in scripts["cases"].CASES if c.group == "growth-N"]
    entries = {c.name: {"case": dataclasses.asdict(c), "libraries": {"ours": {"ms": c.N**1.5}}} for c in growth}
    assert scripts["speed"].slopes(entries) == {"growth-N": pytest.approx(1.5)}


def test_a_race_is_won_by_who_first_comes_near_the_best_peer(scripts):
    runs = {
        "ours": {"trace": [(1.0, 0.5), (2.0, 0.996), (3.0, 1.1)]},
        "ours-minibatch": {"trace": [(0.5, 1.2)]},  # shown, but the defaults are what counts
        "gpflow-sgpr": {"trace": [(5.0, 0.9), (10.0, 1.0)]},
        "gpytorch-adam": {"trace": [(7.0, 0.2)]},
    }
    result = scripts["fit"].verdict(runs)
    assert (result["best"], result["ratio"]) == ("gpflow-sgpr", 5.0)
    assert result["seconds"]["gpytorch-adam"] is None


def test_defaults_are_scored_and_compared(scripts):
    defaults, rng = scripts["defaults"], np.random.default_rng(0)
    X, y = rng.normal(5.0, 3.0, (40, 2)), rng.normal(7.0, 2.0, 40)
    test = np.arange(40) % 10 == 1
    a = defaults.split(X, y, test, False)
    assert len(a["Xtest"]) == 4 and abs(a["y"].mean()) < 1e-12 and a["X"].std(axis=0) == pytest.approx(1.0)
    np.testing.assert_allclose(a["ytest"] - a["ytest"][0], (y[1::10] - y[1]) / y[~test].std())
    answer = {"mean": (a["ytest"] + 0.5).tolist(), "deviation": [0.5] * 4, "seconds": 1.0}
    found = defaults.scores(answer, a)
    assert found["rmse"] == pytest.approx(0.5) and found["coverage"] == 1.0
    assert found["log_density"] == pytest.approx(-0.5 * np.log(2.0 * np.pi * 0.25) - 0.5)

    classes = defaults.split(X, np.where(y > 7.0, "b", "a"), test, True)
    right = {"probabilities": np.eye(2)[classes["ytest"]].tolist(), "seconds": 1.0}
    assert defaults.scores(right, classes)["accuracy"] == 1.0 and defaults.scores(right, classes)["log_density"] == 0.0

    tables = scripts["defaults_tables"]
    ours = {"0": {"log_density": 1.0, "seconds": 1.0}, "1": {"log_density": 3.0, "seconds": 2.0}}
    theirs = {"0": {"log_density": 0.0, "seconds": 3.0}, "1": {"log_density": 1.0, "seconds": 3.0}, "2": {"error": "x"}}
    assert tables.paired(ours, theirs, "log_density") == (1.5, 0.5)
    results = {"yacht": {"ours": ours, "lightgbm": theirs, "sklearn-gp": theirs}}
    assert tables.ranks(results, "log_density", higher=True) == {"ours": 1.0, "lightgbm": 2.0, "sklearn-gp": 3.0}
    table = tables.defaults_table(results, ("yacht",), "rmse")
    assert "| yacht | ours | **2.000** |" in table and "+1.500 ± 0.500" in table and "2, 1 failed |" in table
    assert "| ours | 1.00 | – | 1.5 |" in tables.defaults_ranks(results)
    for entry in ours.values():
        entry |= {"rows": 700, "coverage": 0.9, "seconds": 4.0}
    says = tables.targets(results)
    assert "| 100 % |" in says and "| +1.500 (yacht) |" in says and "| yacht (+1.0 s) |" in says
    assert "| 90.0 % |" in says and "| 4 (at most 4) |" in says


def test_the_model_of_the_cost_of_scale_is_fitted(scripts):
    """Constants that are known are found again, and predict what was left out."""
    scale, constants = scripts["scale"], {"step": [8e-6, 2e-3, 3e-4], "gradient": [4e-6, 5e-3, 9e-4]}

    def seconds(kind, processes, size):
        r, s, a = constants[kind]
        cores = min(processes, 2)
        return r * size / cores + s * processes / cores + 2 * (processes - 1) * a

    sizes = {"step": (1024, 4096, 8192, 16384), "gradient": (2**17, 2**18, 2**19)}
    measured = {
        kind: [
            {"processes": P, "size": size, "seconds": seconds(kind, P, size), "method": "natgrad", "kind": kind}
            for P in (1, 2, 4)
            for size in of
        ]
        for kind, of in sizes.items()
    }
    found = scale.model({"processes": {"steps": measured["step"], "passes": measured["gradient"]}})
    for kind, known in constants.items():
        np.testing.assert_allclose(found[kind]["constants"], known, rtol=1e-9)
        assert len(found[kind]["checks"]) == 2 + len(sizes[kind])
        assert all(np.isclose(one["predicted"], one["seconds"]) for one in found[kind]["checks"])


@pytest.mark.slow
def test_the_benchmark_of_scale_runs(scripts, tmp_path):
    out = tmp_path / "scale.json"
    parts = ["read", "processes", "rows", "overhead"]
    results = scripts["scale"].main(["--quick", "--largest", "1e5", "--out", str(out), "--only", *parts])
    assert json.loads(out.read_text()) == results
    texts = scripts["scale_tables"].texts(results)
    assert {"scale-speed", "scale-growth", "scale-reading", "scale-checks", "scale-extrapolated"} <= texts.keys()
