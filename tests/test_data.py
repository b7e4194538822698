"""What users pass in: everything array-like is accepted, and every bad input gets one error that helps."""

import datetime

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import inducing as ig
from inducing.data import as_data, as_inputs

X = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])


@pytest.mark.parametrize(
    "value",
    [
        X,
        jnp.asarray(X),
        X.tolist(),
        X.astype(int),
        X.astype(np.float32),
        pd.DataFrame(X, columns=["a", "b"]),
        pl.DataFrame({"a": X[:, 0], "b": X[:, 1]}),
        pd.DataFrame({"a": [0, 2, 4], "b": X[:, 1]}),
        np.asfortranarray(X),
        X.astype(object),
        X.astype(np.longdouble),
        np.ma.masked_array(X),
    ],
    ids=lambda value: type(value).__name__,
)
def test_coercion(value):
    x = as_inputs(value)
    assert isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("value", [[1.0, 2.0], pd.Series([1.0, 2.0]), pl.Series([1.0, 2.0]), np.array([True, False])])
def test_vectors_become_columns(value):
    assert as_inputs(value).shape == (2, 1)


def test_dtype_is_kept_or_given():
    assert as_inputs(X.astype(np.float32)).dtype == jnp.float32
    assert as_inputs(X, jnp.float32).dtype == jnp.float32
    assert ig.Data(X, X[:, 0]).astype(jnp.float32).y.dtype == jnp.float32


def test_defaults_of_data():
    data = ig.Data(X, [1.0, np.nan, 3.0])
    assert len(data) == 3 and data.num_missing == 1
    assert data.mask[:, 0].tolist() == [True, False, True]
    assert data.index.tolist() == [0, 1, 2]
    some = data.rows(jnp.array([2, 0]))
    assert some.index.tolist() == [2, 0] and some.y[:, 0].tolist() == [3.0, 1.0]


def test_a_mask_hides_labels_and_so_does_nan():
    data = ig.Data(X, [[1.0, 2.0], [np.nan, 4.0], [5.0, 6.0]], mask=[[True, False], [True, True], [True, True]])
    assert data.mask.tolist() == [[True, False], [False, True], [True, True]]


def test_tuples_are_data():
    assert len(as_data((X, [1, 2, 3]))) == 3
    assert as_data([X, [1, 2, 3], [True, True, False]]).num_missing == 1
    data = ig.Data(X, [1.0, 2.0, 3.0])
    assert as_data(data).x is data.x and as_data(data).y is data.y  # nothing is copied


def test_pandas_labels_with_missing_values():
    assert ig.Data(X, pd.Series([1.0, None, 3.0])).num_missing == 1
    assert ig.Data(X, pl.Series([1.0, None, 3.0])).num_missing == 1
    assert ig.Data(X, pd.Series([True, None, False], dtype="boolean")).mask.tolist() == [[True], [False], [True]]
    nullable = pd.DataFrame({"count": pd.Series([1, None, 3], dtype="Int64"), "size": [0.5, 1.5, 2.5]})
    np.testing.assert_array_equal(ig.Data(X, nullable).y, [[1.0, 0.5], [np.nan, 1.5], [3.0, 2.5]])
    with pytest.raises(ValueError, match="x has nan in row 1, column 'count'"):
        ig.Data(nullable, [1.0, 2.0, 3.0])


def test_masked_labels_are_missing():
    """Of a masked array the values below the mask mean nothing: often -999."""
    for y in (np.ma.masked_equal([1.0, -999.0, 3.0], -999.0), np.ma.masked_equal([1, -999, 3], -999)):
        np.testing.assert_array_equal(ig.Data(X, y).y, [[1.0], [np.nan], [3.0]])


def test_unlabelled_and_unsupervised_data():
    assert ig.Data(X).y is None and len(ig.Data(None, X)) == 3
    with pytest.raises(ValueError, match="neither"):
        ig.Data(None, None)


BAD = {
    "nan in X": (lambda: ig.Data([[0.0], [np.nan]], [1, 2]), ValueError, ["x has nan", "row 1", "column 0", "impute"]),
    "nan in a frame": (
        lambda: ig.Data(pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, None]}), [1, 2]),
        ValueError,
        ["x has nan", "row 1", "column 'b'", "impute"],
    ),
    "inf in X": (lambda: as_inputs([0.0, np.inf]), ValueError, ["X has inf", "row 1"]),
    "inf in y": (lambda: ig.Data([0.0, 1.0], [0.0, -np.inf]), ValueError, ["y has -inf", "row 1", "NaN"]),
    "rows": (lambda: ig.Data(X, [1.0, 2.0]), ValueError, ["x has 3 rows", "y has 2"]),
    "empty": (lambda: as_inputs(np.zeros((0, 2))), ValueError, ["X is empty", "(0, 2)", "at least one row"]),
    "no columns": (lambda: ig.Data(None, np.zeros((3, 0))), ValueError, ["y is empty", "(3, 0)"]),
    "three axes": (lambda: as_inputs(np.zeros((2, 2, 2))), ValueError, ["matrix", "(2, 2, 2)"]),
    "scalar": (lambda: as_inputs(3.0), ValueError, ["vector", "()"]),
    "text": (lambda: as_inputs([["1.0", "red"]]), TypeError, ["'red'", "column 1", "encode"]),
    "text frame": (
        lambda: as_inputs(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})),
        TypeError,
        ["'x'", "column 'b'", "encode"],
    ),
    "ragged": (lambda: as_inputs([[1.0, 2.0], [3.0]]), ValueError, ["X must have rows of equal length"]),
    "sparse": (lambda: as_inputs(scipy.sparse.csr_array(X)), TypeError, ["X is sparse", "pass X.toarray()"]),
    "named columns": (
        lambda: as_inputs(np.array([(1, 2.0)], dtype=[("a", int), ("b", float)])),
        TypeError,
        ["X has named columns, a, b", "structured_to_unstructured"],
    ),
    "masked in X": (
        lambda: ig.Data(np.ma.masked_equal(X, 3.0), [1, 2, 3]),
        ValueError,
        ["x has nan", "row 1", "column 1", "impute"],
    ),
    "complex": (lambda: as_inputs(np.ones(2) * 1j), TypeError, ["real numbers", "complex"]),
    "dates": (lambda: as_inputs(pd.to_datetime(["2020-01-01", None])), TypeError, ["X must be numbers", "datetime64"]),
    "times": (lambda: ig.Data(X[:2], pd.to_timedelta([1, None], unit="s")), TypeError, ["y must be", "unit"]),
    "polars dates": (
        lambda: as_inputs(pl.DataFrame({"day": [datetime.date(2020, 1, 1)], "size": [1.0]})),
        TypeError,
        ["X must be numbers", "Date, in column 'day'", "unit"],
    ),
    "polars times as labels": (
        lambda: ig.Data(X[:1], pl.DataFrame({"at": [datetime.time(1)], "size": [1]})),
        TypeError,
        ["y must be numbers", "Time, in column 'at'"],
    ),
    "dates beside numbers": (
        lambda: as_inputs(pd.DataFrame({"day": pd.to_datetime(["2020-01-01"]), "size": [1.0]})),
        TypeError,
        ["Timestamp", "column 'day'", "count times in a unit"],
    ),
    "X beyond float32": (
        lambda: as_inputs([[0.0, 1.0], [2.0, -1e300]], jnp.float32),
        ValueError,
        ["X has -1e+300 in row 1, column 1, too large for float32", "float64"],
    ),
    "y beyond float32": (
        lambda: as_data(([0.0, 1.0], [1e39, np.nan]), jnp.float32),
        ValueError,
        ["y has 1e+39 in row 0, column 0, too large for float32"],
    ),
    "nothing but missing": (lambda: ig.Data(X, [np.nan] * 3), ValueError, ["every label", "missing"]),
    "mask": (lambda: ig.Data(X, [1, 2, 3], mask=[True]), ValueError, ["mask", "(3, 1)"]),
    "index": (lambda: ig.Data(X, [1, 2, 3], index=[0, 1]), ValueError, ["index", "(3,)"]),
    "no pair": (lambda: as_data(X[0]), TypeError, ["pair (X, y)", "ndarray"]),
    "one of a pair": (lambda: as_data((X,)), TypeError, ["pair (X, y)"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    make, kind, words = BAD[name]
    with pytest.raises(kind) as error:
        make()
    for word in words:
        assert word in str(error.value)


def test_traced_data_are_accepted():
    """Inside jit the values are unknown, so only shapes are seen to."""
    total = jax.jit(lambda x, y: jnp.sum(ig.Data(x, y).y) + ig.Data(x).x.shape[1])(jnp.ones(3), jnp.ones(3))
    assert float(total) == 4.0


def test_what_float32_cannot_hold_is_refused_where_it_is_all_there_is():
    with jax.enable_x64(False):
        assert ig.Data([1e30, 2.0], [1.0, 2.0]).x.dtype == jnp.float32
        with pytest.raises(ValueError, match="x has 1e\\+300 in row 0, column 0, too large for float32"):
            ig.Data([1e300, 2.0], [1.0, 2.0])


TIMES = 1.7e9 + 10.0 * np.arange(200)  # float32 has 17 numbers there


@pytest.mark.parametrize("as_float32", [lambda x, y: as_data((x, y), jnp.float32), lambda x, y: ig.Data(x, y)])
def test_inputs_that_float32_would_make_equal_are_refused(as_float32):
    """Also as integers, and beside a column that keeps the rows apart."""
    other = np.linspace(0.0, 1.0, 200)
    assert len(np.unique(TIMES.astype(np.float32))) == 17
    with jax.enable_x64(False):
        for x in (TIMES, TIMES.astype(int), np.stack([other, TIMES], 1), 1.0 + 1e-9 * other, 1e-50 * other):
            with pytest.raises(
                ValueError, match=r"x has 200 different values in column \d, .* can tell \d+ apart; sub"
            ):
                as_float32(x, other)
        with pytest.raises(ValueError, match=r"y has 200 different values in column 0, .* can tell 17 apart"):
            as_float32(other, TIMES)
        with pytest.raises(ValueError, match="X has 200 different values in column 0"):
            as_inputs(TIMES, jnp.float32)


def test_inputs_of_which_float32_keeps_most_are_warned_of():
    """Hours of 20 years, counted in years: neighbours differ by 1.1e-4, numbers of float32 by 1.2e-4."""
    with pytest.warns(UserWarning, match="x has 175320 different values .* can tell 163840 apart"):
        as_data((2000.0 + np.arange(175320) / 8766.0, np.zeros(175320)), jnp.float32)


@pytest.mark.parametrize(
    "x",
    [
        np.random.default_rng(0).uniform(size=200_000),  # many coincide, but at a distance that no kernel sees
        np.arange(16_000_000, 16_000_500),
        np.full(5, 1.7e9),
        [0.3, 0.1 + 0.2],  # one number, computed in two ways
        1e-12 * np.arange(5),
        [-1e38, 1e38],
        np.zeros((5, 0)),
    ],
)
def test_what_float32_can_tell_apart_passes_in_silence(x):
    with jax.enable_x64(False):
        ig.Data(x, np.arange(len(x)))
        as_inputs(x, jnp.float32)


def test_a_mask_of_anything_but_true_and_false_is_refused():
    for mask in (["a", "b"], [np.nan, 0.0], [2, 0]):
        with pytest.raises(ValueError, match="mask must hold True"):
            ig.Data([1.0, 2.0], [1.0, 2.0], mask=mask)
