"""The HTML report: its numbers against NumPy, and its pages in a headless Chromium."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.report.contents import Column, Contents, Target, Training
from inducing.report.html import far_rows, write_contents
from inducing.report.measures import _mean, baseline_of, coverage, judge, measures, measures_of
from inducing.training.monitor import History
from tests.chromium import Chromium, find_chromium

HOSTILE = "<script>document.title='stolen'</script>"
TEMPLATE = "%{x}<img src=x onerror=\"document.title='stolen'\">@blue"
rng = np.random.default_rng(0)
X = rng.uniform(size=(120, 4))
CATEGORY = np.array(["</script><script>document.title='stolen'</script>", "@red", "b & c"])[rng.integers(3, size=120)]


def gp(likelihood, outputs=1):
    """A function of two of four columns, as if it had been trained on the first 40 rows."""
    f = np.stack([np.sin(4 * X[:40, 0]) + X[:40, 1], X[:40, 1] - X[:40, 0], 2 * X[:40, 2]])[:outputs]
    kernel = ig.kernels.SquaredExponential(jnp.array([0.5, 0.5, 1.0, 1.0]))
    prior = ig.GP(kernel) if outputs == 1 else ig.priors.Independent(kernel, outputs)
    features = ig.features.InducingPoints(X[:40])
    root = jnp.broadcast_to(0.02 * jnp.eye(40), (outputs, 40, 40))
    gp = ig.SparseGP(prior, features, mean=f, root=root, coordinates="u", jitter=1e-6)
    return ig.Model(gp, likelihood)


def columns():
    category = np.unique(CATEGORY, return_inverse=True)[1]
    days = np.datetime64("2020-01-01") + (1000 * X[:, 3]).astype("timedelta64[D]")
    some = np.where(np.arange(120) % 9 == 0, np.nan, 10 * X[:, 0])
    assert category.max() == 2
    return [
        Column(HOSTILE, (0,), some, "number <b>bold</b>"),
        Column(TEMPLATE, (1,), X[:, 1]),
        Column("category", (2,), CATEGORY),
        Column("day", (3,), days),
    ]


def numbers(**more):
    y = (np.sin(4 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=120))[:, None]
    y[3] = np.nan
    history = History(np.arange(30), -100 / (1.0 + np.arange(30)), np.arange(30.0))
    given = {
        "training": Training(X[:40], np.sin(4 * X[:40, :1]) + X[:40, 1:2]),
        "rows": [f"row {HOSTILE} {i}" for i in range(120)],
        "history": history, "message": f"done {HOSTILE}", "left_out": {HOSTILE + "2": "an identifier"},
        "warnings": [f"careful with {HOSTILE}"], "reproduce": {"command": f"inducing fit {HOSTILE}"},
        "facts": {"rows": HOSTILE},
    }  # fmt: skip
    model = gp(ig.likelihoods.Gaussian(0.01))
    return Contents(f"Report {HOSTILE}", model, [Target(TEMPLATE)], columns(), X, y, **(given | more))


def classes():
    y = np.argmax(np.stack([np.sin(4 * X[:, 0]) + X[:, 1], X[:, 1] - X[:, 0], 2 * X[:, 2]]), axis=0)[:, None]
    names = (HOSTILE, "%{text}", "@green")
    return Contents("Classes", gp(ig.likelihoods.Softmax(3), 3), [Target("kind", names)], columns(), X, y.astype(float))


def several():
    f = np.stack([np.sin(4 * X[:, 0]) + X[:, 1], X[:, 1] - X[:, 0]], axis=1)
    y = f + 0.1 * rng.normal(size=f.shape)
    y[::5, 1] = np.nan
    model = gp(ig.likelihoods.Gaussian(np.array([0.01, 0.02])), 2)
    return Contents(
        "Several",
        model,
        [Target("first"), Target("second")],
        columns(),
        X,
        y,
        message="7 steps: the time is up; bound 3",
    )


def test_scores_of_numbers():
    """RMSE, error, R² and their standard errors by NumPy; baselines by least squares."""
    contents = numbers()
    pred = contents.model.predict(X)
    own = judge(pred, contents.y)
    seen = np.isfinite(contents.y[:, 0])
    error = contents.y[seen, 0] - np.asarray(pred.mean)[seen, 0]
    names, found = measures_of(contents, 0, own)
    assert names == ("this model", "always the average", "linear regression")
    by_name = {m.name: m.values for m in found}
    rmse = np.sqrt(np.mean(error**2))
    np.testing.assert_allclose(by_name["RMSE"][0][0], rmse)
    boot = np.random.default_rng(1).integers(seen.sum(), size=(4000, seen.sum()))
    np.testing.assert_allclose(by_name["RMSE"][0][1], np.sqrt(np.mean(error[boot] ** 2, axis=1)).std(), rtol=0.1)
    y = contents.y[seen, 0]
    explained = 1 - np.mean(error[boot] ** 2, axis=1) / y[boot].var(axis=1)
    np.testing.assert_allclose(by_name["R²"][0][0], 1 - np.mean(error**2) / y.var())
    np.testing.assert_allclose(by_name["R²"][0][1], explained.std(), rtol=0.25)
    np.testing.assert_allclose(by_name["log density"][0][0], -ig.scores.log_score(pred, contents.y))
    np.testing.assert_allclose(by_name["CRPS"][0][0], ig.scores.crps(pred, contents.y))
    A = np.concatenate([np.ones((40, 1)), X[:40]], axis=1)
    weights = np.linalg.lstsq(A, contents.training.y[:, 0])[0]
    linear = np.concatenate([np.ones((120, 1)), X], axis=1)[seen] @ weights
    np.testing.assert_allclose(by_name["RMSE"][2][0], np.sqrt(np.mean((y - linear) ** 2)), rtol=1e-3)
    average = contents.training.y.mean()
    np.testing.assert_allclose(by_name["mean absolute error"][1][0], np.mean(np.abs(y - average)))


def test_scores_of_classes():
    contents = classes()
    pred = contents.model.predict(X)
    own = judge(pred, contents.y, num_classes=3)
    by_name = {m.name: m.values for m in measures_of(contents, 0, own)[1]}
    np.testing.assert_allclose(by_name["log-loss"][0][0], ig.scores.log_score(pred, contents.y), rtol=1e-3)
    np.testing.assert_allclose(by_name["Brier score"][0][0], ig.scores.brier(pred, contents.y))
    most = np.bincount(contents.y[:, 0].astype(int)).max() / 120
    np.testing.assert_allclose(by_name["accuracy"][1][0], most)


def test_weights_count_as_repeated_rows():
    """The scores of weighted rows are those of repeated rows; weights of 0 leave rows out."""
    counts = np.arange(120) % 3
    repeated = np.repeat(np.arange(120), counts)
    for contents in (numbers(training=None), classes()):
        C = contents.model.likelihood.class_count() or 0
        found = []
        for rows, weight in ((np.arange(120), counts.astype(float)), (repeated, None)):
            own = judge(contents.model.predict(contents.X[rows]), contents.y[rows], 0, C, weight)
            of = measures(own, baseline_of(own.y, C, own.weight))
            found.append({m.name: [value for value, _ in m.values] for m in of})
        assert found[0].keys() == found[1].keys()
        for name in found[0]:
            np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-2 if C else 1e-9, err_msg=name)


def test_standard_errors_of_weighted_means():
    """They are the spread of the means of many samples of rows and weights."""
    many = np.random.default_rng(2)
    weight = many.gamma(0.5, size=(4000, 200))
    values = weight + many.normal(size=weight.shape)
    means, errors = np.array([_mean(v, w) for v, w in zip(values, weight, strict=True)]).T
    np.testing.assert_allclose(np.sqrt(np.mean(errors**2)), means.std(), rtol=0.05)


def test_the_logistic_baseline_is_that_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    from inducing.report.measures import _logistic

    labels = (X[:, 0] > X[:, 1] + 0.2 * rng.normal(size=120)).astype(int) + (X[:, 2] > 0.7)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = LogisticRegression(tol=1e-10, max_iter=1000).fit(scaled, labels).predict_proba(scaled)
    np.testing.assert_allclose(_logistic(X, X, labels, 3, np.ones(120)), expected, atol=1e-4)


def test_coverage_counts_rows_inside():
    contents = numbers()
    pred = contents.model.predict(X)
    for level, share, _ in coverage(pred, judge(pred, contents.y), 0):
        low, high = pred.interval(level)
        seen = np.isfinite(contents.y)
        inside = (np.asarray(low) <= contents.y) & (contents.y <= np.asarray(high))
        np.testing.assert_allclose(share, inside[seen].mean())


def test_rows_far_from_the_training_data_are_found():
    """Far is decided by what the data say of f: rows three lengthscales away, and no others."""
    moved = X.copy()
    moved[100:] += 10.0
    contents = Contents("t", gp(ig.likelihoods.Gaussian(0.01)), [Target("y")], columns(), moved, moved[:, :1])
    assert far_rows(contents, np.arange(50, 120)).tolist() == [False] * 50 + [True] * 20
    deep = ig.Model(ig.Deterministic(lambda x: x[:1]), ig.likelihoods.Gaussian(0.1))
    assert not far_rows(Contents("t", deep, [Target("y")], columns(), moved, moved[:, :1]), np.arange(9)).any()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    given = {"numbers": numbers(), "classes": classes(), "several": several()}
    paths = {name: write_contents(folder / f"{name}.html", contents) for name, contents in given.items()}
    return paths | {"no rows": write_contents(folder / "no_rows.html", given["numbers"], rows=False)}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if find_chromium() is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    pytest.importorskip("websocket", reason="websocket-client is not installed: pip install '.[test]'")
    browser = Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def opened(chromium, path, width=1200):
    chromium.errors.clear()
    chromium.resize(width)
    chromium.open(path.as_uri())
    chromium.wait("document.documentElement.dataset.drawn == 'yes'", 60)


@pytest.mark.parametrize(("name", "plots"), [("numbers", 7), ("classes", 6), ("several", 12), ("no rows", 7)])
def test_pages_draw_every_plot_without_errors_or_harm(chromium, pages, name, plots):
    opened(chromium, pages[name])
    drawn = "[...document.querySelectorAll('figure .plot')].map(p => p.querySelectorAll('.trace, .hm').length)"
    assert len(counts := chromium.evaluate(drawn)) == plots and min(counts) > 0
    assert chromium.evaluate("document.title") in {numbers().title, "Classes", "Several"}
    assert chromium.evaluate("document.querySelectorAll('main script, main img, b b').length") == 0
    assert "undefined" not in chromium.evaluate("document.body.innerText")
    assert chromium.errors == []
    assert pages[name].stat().st_size < 6e6


def test_figures_have_texts_for_those_who_do_not_see_them(chromium, pages):
    opened(chromium, pages["several"])
    texts = chromium.evaluate("[...document.querySelectorAll('figure .plot')].map(p => p.getAttribute('aria-label'))")
    assert all(len(text) > 30 for text in texts)
    assert chromium.evaluate("document.documentElement.lang") == "en"
    assert chromium.evaluate("document.querySelectorAll('th:not([scope])').length") == 0


def test_hover_shows_the_row(chromium, pages):
    opened(chromium, pages["numbers"])
    chromium.evaluate("document.getElementById('figure-0').scrollIntoView({behavior: 'instant', block: 'center'})")
    where = "(() => { const r = document.querySelector('#figure-0 .points path').getBoundingClientRect();"
    x, y = chromium.evaluate(where + " return [r.x + r.width / 2, r.y + r.height / 2]; })()")
    chromium.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    chromium.wait("document.querySelector('#figure-0 .hoverlayer .hovertext') !== null")
    text = chromium.evaluate("document.querySelector('#figure-0 .hoverlayer').textContent")
    assert text.startswith(f"row row {HOSTILE}") and f"{TEMPLATE}: " in text and "predicted" in text
    assert chromium.errors == []


def test_the_reader_chooses_the_column_of_residuals(chromium, pages):
    opened(chromium, pages["numbers"])
    names = chromium.evaluate("[...document.querySelector('select').options].map(o => o.text)")
    assert set(names) == {"prediction", HOSTILE, TEMPLATE, "category", "day"}
    for name in names:
        script = f"(s => {{ s.value = {names.index(name)}; s.dispatchEvent(new Event('change')); }})"
        chromium.evaluate(script + "(document.querySelector('select'))")
        title = "document.querySelector('#figure-1 .xtitle').textContent"
        chromium.wait(f"{title} == {name!r}" if "'" not in name else f"{title}.length == {len(name)}")
    assert chromium.errors == []
    assert chromium.evaluate("document.title") == numbers().title


def test_pages_fit_a_phone(chromium, pages):
    for name in ("numbers", "classes"):
        opened(chromium, pages[name], width=400)
        assert chromium.evaluate("document.documentElement.scrollWidth") <= 400
        widths = chromium.evaluate("[...document.querySelectorAll('figure .plot')].map(p => p.clientWidth)")
        assert max(widths) <= 400 and min(widths) > 300


def test_colours_follow_the_theme(chromium, pages):
    ink = "getComputedStyle(document.querySelector('#figure-0 .xtitle')).fill"
    found = []
    for value in ("light", "dark"):
        chromium.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])
        opened(chromium, pages["numbers"])
        found.append((chromium.evaluate(ink), chromium.evaluate("getComputedStyle(document.body).backgroundColor")))
    chromium.call("Emulation.setEmulatedMedia", features=[])
    assert found == [("rgb(27, 33, 38)", "rgb(255, 255, 255)"), ("rgb(232, 236, 239)", "rgb(20, 24, 28)")]


def unpacked(path):
    """The figures inside of a page."""
    import base64
    import gzip

    return gzip.decompress(base64.b64decode(re.search(r'id="packed-figures">([^<]*)<', path.read_text())[1])).decode()


def test_reports_without_rows_hold_no_values_of_rows(pages):
    """Neither labels, nor predictions, nor names of rows, with the precision at which they would be written."""
    with_rows, without = unpacked(pages["numbers"]), unpacked(pages["no rows"])
    values = {f"{v:.5g}" for v in np.asarray(numbers().model.predict(X).mean)[:, 0]}
    values = {value for value in values if len(value) > 5}  # short ones occur by chance
    written = [set(re.findall(r"-?[\d.]+", text)) for text in (with_rows, without)]
    assert len(values & written[0]) > 90
    assert len(values & written[1]) < 5  # by chance
    assert "row row" in with_rows and "row row" not in without
    assert "row row" not in pages["no rows"].read_text()


def test_the_reader_learns_of_the_time_limit_and_of_all_targets(pages):
    text = pages["several"].read_text()
    assert "Training ended at its time limit" in text and "<b>first</b> and <b>second</b>" in text
    assert "ended at its time limit" not in pages["numbers"].read_text()


def test_many_rows_stay_below_the_limit_of_size(tmp_path):
    """At 20,000 rows with 10 columns, 5,000 are plotted; scores use all."""
    many = np.random.default_rng(0).normal(size=(20_000, 10))
    y = many[:, :1] + 0.3 * np.random.default_rng(1).normal(size=(20_000, 1))
    model = ig.Model(ig.Deterministic(lambda x: x[:1] + 0.01 * x[1:2]), ig.likelihoods.Gaussian(0.09))
    path = ig.report.write_html(tmp_path / "many.html", model, (many, y), names=[f"column {i}" for i in range(10)])
    assert path.stat().st_size < 6e6
    assert "on 20,000 rows" in path.read_text()
    assert unpacked(path).count("<b>row") == 5000


def test_wrong_arguments_are_refused(tmp_path):
    model = gp(ig.likelihoods.Gaussian(0.01))
    for given, message in (
        ({"targets": ["a", "b"]}, "targets must name the 1 columns"),
        ({"classes": ["a", "b"]}, "classes must name the 0 classes"),
        ({"names": ["a"]}, "a name for each of the 4 columns"),
    ):
        with pytest.raises(ValueError, match=message):
            ig.report.write_html(tmp_path / "report.html", model, (X, X[:, :1]), **given)
