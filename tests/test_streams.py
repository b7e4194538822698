"""`ig.Stream`: files, arrays and batches, their order, and what is said of bad ones."""

import gzip
import itertools

import jax
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import inducing as ig
from inducing.streams.order import Order
from inducing.streams.source import BLOCK

N = 1000
RNG = np.random.default_rng(0)
X, Y, W = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 2)), RNG.uniform(0.5, 2.0, N)
Y[RNG.uniform(size=Y.shape) < 0.1] = np.nan
TABLE = pa.table(
    {
        "id": np.arange(N),
        "a": X[:, 0],
        "b": X[:, 1],
        "u": pa.array(Y[:, 0], mask=np.isnan(Y[:, 0])),
        "v": Y[:, 1],
        "w": W,
    }
)
COLUMNS = {"x": ["a", "b"], "y": ["u", "v"], "weight": "w"}


def write(folder, kind):
    """The table in three files."""
    for i, part in enumerate((TABLE[:300], TABLE[300:301], TABLE[301:])):
        if kind == "parquet":
            pa.parquet.write_table(part, folder / f"{i}.parquet", row_group_size=97)
        elif kind == "arrow":
            with pa.ipc.new_file(folder / f"{i}.arrow", part.schema) as file:
                for batch in part.to_batches(max_chunksize=97):
                    file.write_batch(batch)
        else:
            pa.csv.write_csv(part, folder / f"{i}.csv")
            if kind == "csv.gz":
                text = (folder / f"{i}.csv").read_bytes()
                (folder / f"{i}.csv.gz").write_bytes(gzip.compress(text))
                (folder / f"{i}.csv").unlink()
    return ig.Stream(f"{folder}/*.{kind}", **COLUMNS, window=200)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "csv.gz"])
def test_an_epoch_of_files_has_each_row_once(tmp_path, kind):
    stream = write(tmp_path, kind)
    assert len(stream) == N
    batches = list(itertools.islice(stream.batches(40), N // 40))
    assert sorted(np.concatenate([b.index for b in batches])) == list(range(N))
    for batch in batches:
        rows = np.asarray(batch.index)
        np.testing.assert_allclose(batch.x, X[rows], rtol=1e-12)
        np.testing.assert_allclose(batch.y, Y[rows], rtol=1e-12)
        np.testing.assert_array_equal(batch.mask, ~np.isnan(Y[rows]))
        np.testing.assert_allclose(batch.weight, W[rows], rtol=1e-12)
    in_order = list(stream.chunks(300))
    assert [len(rows) for rows in in_order] == [300] * 4  # the last one is filled with rows without labels
    assert np.isnan(in_order[-1].y[100:]).all()
    np.testing.assert_array_equal(np.concatenate([rows.y for rows in in_order])[:N], Y)


@pytest.mark.parametrize("kind", ["parquet", "csv.gz"])
def test_the_batch_is_a_function_of_seed_and_step(tmp_path, kind):
    """However many processes share it, and wherever one begins; another seed gives another one."""
    stream = write(tmp_path, kind)
    one = list(itertools.islice(stream.rows(64, (3,)), 40))  # two epochs and more
    for parts in (2, 4):
        readers = [itertools.islice(stream.rows(64, (3,), 0, part, parts), 40) for part in range(parts)]
        for whole, shares in zip(one, zip(*readers, strict=True), strict=True):
            np.testing.assert_array_equal(np.concatenate([rows.index for rows in shares]), whole.index)
    for first in (1, 17, 39):
        np.testing.assert_array_equal(next(stream.rows(64, (3,), first)).index, one[first].index)
    assert (next(stream.rows(64, (4,))).index != one[0].index).any()
    epoch = N // 64
    assert sorted(one[0].index) != sorted(one[epoch].index)


def test_rows_are_mixed_evenly():
    """Each row is about as likely as any other to be in the first batch: at most five standard deviations off."""
    blocks, size, seeds = np.full(10, 10), 20, 2000
    counts = np.zeros(100)
    for seed in range(seeds):
        order = Order(blocks, True, size, 40, (seed,))
        there = np.concatenate([np.arange(first, last) for _, first, last in order.ranges_of(0, 0, 1)])
        rows = there[order.rows_of(0, 0, 0, 1)[0]]
        of_block, within = np.divmod(rows, 10)
        counts[order.order_of_blocks(0)[of_block] * 10 + within] += 1
    p = size / 100
    assert counts.sum() == size * seeds
    assert np.abs(counts - seeds * p).max() < 5 * np.sqrt(seeds * p * (1 - p))


@pytest.mark.parametrize("parts", [1, 2, 4, 16])
def test_a_process_reads_its_share_of_the_rows(parts):
    """Of many blocks, wherever these and the windows end: but for the blocks that two processes share."""
    blocks = np.append(np.full(300, 60), 17)
    order = Order(blocks, True, 64, 300, (0,))
    assert order.lanes == 16  # of a block of each, 960 rows, up to four windows are held
    ends, windows = np.cumsum(blocks[order.order_of_blocks(0)]), -(-order.per_epoch // order.per_window)
    for part in range(parts):
        reads, held = 0, {}
        for window in range(windows):
            for lane, first, last in order.ranges_of(window, part, parts):
                begin, end = np.searchsorted(ends, (first, last - 1), side="right")
                for block in range(begin, end + 1):
                    reads += held.get(lane) != block
                    held[lane] = block
        assert reads <= len(blocks) / parts + 1 + 16 / parts


def test_arrays_memory_maps_and_batches_give_the_same_rows(tmp_path):
    n = BLOCK + 1000  # more than one block
    table = RNG.normal(size=(n, 3))
    np.save(tmp_path / "rows.npy", table)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")

    def batches():
        for first in range(0, n, 777):
            here = table[first : first + 777]
            yield {"a": here[:, 0], "b": here[:, 1], "y": here[:, 2]}

    streams = [
        ig.Stream((table[:, :2], table[:, 2])),
        ig.Stream(mapped, x=[0, 1], y=2),
        ig.Stream(batches, x=["a", "b"], y="y", num_data=n),
        ig.Stream([(table[:5000, :2], table[:5000, 2]), ig.Data(table[5000:, :2], table[5000:, 2])], num_data=n),
    ]
    for stream in streams:
        assert len(stream) == n
        batch = next(stream.batches(512, seed=1))
        np.testing.assert_array_equal(np.hstack([batch.x, batch.y]), table[np.asarray(batch.index)])
    first, second = (next(stream.batches(512, seed=1)) for stream in streams[:2])
    np.testing.assert_array_equal(first.index, second.index)


def test_the_sample_is_spread_and_always_the_same():
    n = 5 * BLOCK
    stream = ig.Stream((np.arange(float(n)), np.zeros(n)))
    sample = stream.sample()
    assert 20_000 <= len(sample) <= 20_016
    np.testing.assert_array_equal(sample.index, ig.Stream((np.arange(float(n)), np.zeros(n))).sample().index)
    np.testing.assert_array_equal(sample.x[:, 0], sample.index)
    assert np.bincount(np.asarray(sample.index) // BLOCK).tolist() == [4000] * 5
    assert len(ig.Stream((X, Y)).sample()) == N


def test_files_in_a_folder_and_in_a_list(tmp_path):
    write(tmp_path, "parquet")
    sources = {tmp_path: N, f"{tmp_path}/?.parquet": N, (tmp_path / "0.parquet", f"{tmp_path}/1*"): 301}
    for source, rows in sources.items():
        assert len(ig.Stream(list(source) if isinstance(source, tuple) else source, x="a", y="u")) == rows
    with pytest.raises(FileNotFoundError, match="no file matches"):
        ig.Stream(f"{tmp_path}/*.csv", x="a", y="u")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ValueError, match=r"notes.txt: unknown format"):
        ig.Stream(tmp_path, x="a", y="u")


def test_another_file_system_and_an_index():
    files = pa.fs._MockFileSystem()
    files.create_dir("rows")
    with files.open_output_stream("rows/0.parquet") as out:
        pa.parquet.write_table(TABLE.set_column(0, "id", [np.arange(N)[::-1]]), out)
    stream = ig.Stream("rows/*.parquet", x=["a"], y="u", index="id", filesystem=files)
    batch = next(stream.batches(8))
    np.testing.assert_array_equal(batch.x[:, 0], X[N - 1 - np.asarray(batch.index), 0])


BAD = [
    (TABLE.drop(["b"]), "there is no column 'b'"),
    (TABLE.set_column(2, "b", [["text"] * N]), "column 'b' holds string"),
    (TABLE.set_column(2, "b", [pa.array([None] * 3 + [1.0] * (N - 3))]), "column 'b' has 3 empty cells"),
    (TABLE.set_column(2, "b", [np.r_[X[1:, 0], np.inf]]), "column 'b' has inf"),
    (TABLE.set_column(4, "v", [np.r_[X[1:, 0], -np.inf]]), "column 'v' has -inf"),
]


@pytest.mark.parametrize(("table", "says"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_errors_name_the_file_and_the_column(tmp_path, table, says):
    write(tmp_path, "parquet")
    pa.parquet.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=rf"bad\.parquet: {says}"):
        list(itertools.islice(ig.Stream(tmp_path, **COLUMNS).batches(40), 50))


def test_bad_cells_of_csv_files(tmp_path):
    (tmp_path / "good.csv").write_text('a,note,y\n1,"two\nlines, and ""quotes""",2\n\n3,x,\n5,,6')
    stream = ig.Stream(tmp_path / "good.csv", x="a", y="y")
    np.testing.assert_array_equal(next(stream.chunks(3)).y[:, 0], [2.0, np.nan, 6.0])
    text = "note,a,y\nx,1,2\nx,three,4\n"
    (tmp_path / "bad.csv").write_text(text)
    (tmp_path / "bad.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("bad.csv", "bad.csv.gz"):
        with pytest.raises(ValueError, match=rf"{name}: column 'a': .*three"):
            ig.Stream(tmp_path / name, x="a", y="y").sample()
        with pytest.raises(ValueError, match=rf"{name}: there is no column 'b'; the columns are 'note', 'a', 'y'"):
            ig.Stream(tmp_path / name, x="b", y="y")
    (tmp_path / "twice.csv").write_text("a,a,y\n1,2,3\n")
    with pytest.raises(ValueError, match=r"twice\.csv: there are several columns 'a'"):
        ig.Stream(tmp_path / "twice.csv", x="a", y="y")
    (tmp_path / "empty.csv").write_text("a,y\n")
    with pytest.raises(ValueError, match=r"empty\.csv holds no rows"):
        ig.Stream(tmp_path / "empty.csv", x="a", y="y")


def test_files_must_not_change(tmp_path):
    stream = write(tmp_path, "parquet")
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"1\.parquet: the file has vanished"):
        list(stream.chunks(100))
    write(tmp_path, "csv")
    stream = ig.Stream(f"{tmp_path}/*.csv", x="a", y="u")
    with open(tmp_path / "2.csv", "a") as file:
        file.write("1,2,3,4,5,6\n")
    with pytest.raises(ValueError, match=r"2\.csv: the file has \d+ bytes, and had"):
        list(stream.chunks(100))


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: ig.Stream("rows.parquet"), ValueError, "names of their columns"),
        (lambda: ig.Stream(np.zeros((3, 2))), ValueError, "numbers of its columns"),
        (lambda: ig.Stream((np.zeros(3), np.zeros(2))), ValueError, "x has 3 rows and y has 2"),
        (lambda: ig.Stream((np.array(["a"]), np.zeros(1))), TypeError, "x must hold numbers"),
        (lambda: ig.Stream(iter([]), num_data=3), TypeError, "can be repeated"),
        (lambda: ig.Stream(lambda: [], num_data=None), ValueError, "needs num_data"),
        (lambda: ig.Stream(7), TypeError, "got 7"),
        (lambda: ig.Stream(abs, num_data=3), TypeError, "source must be .* got a builtin_function"),
        (lambda: ig.Stream((X, 2.0)), TypeError, r"source must be arrays \(X, y\) with labels"),
        (lambda: ig.Stream(X), ValueError, r"source is an array, which must be \[N, columns\]"),
        (lambda: ig.Stream(X, y="a"), ValueError, "y must be columns of the array, numbered from 0 to .*, got 'a'"),
        (
            lambda: ig.Stream([{"y": [1.0]}], x="a", y="y", num_data=1).sample(),
            ValueError,
            "a batch has no column 'a'; it has 'y'",
        ),
        (lambda: ig.Stream((X, Y)).batches(N + 1), ValueError, "batch_size must be a whole number from 1 to"),
        (lambda: ig.Stream((X, Y), window=0), ValueError, "window"),
        (lambda: ig.Stream((X, Y), window="a"), ValueError, "window must be an integer"),
        (lambda: ig.Stream("rows.parquet", x=2.5, y="y"), TypeError, "x must be the name of a column"),
        (lambda: ig.Stream([(X, Y)], num_data="a"), ValueError, "num_data must be an integer"),
        (lambda: next(ig.Stream((X, Y)).batches("a")), ValueError, "batch_size must be an integer"),
        (lambda: next(ig.Stream((X, Y)).batches(3, seed="a")), ValueError, "seed must be whole numbers"),
        (lambda: next(ig.Stream((X, Y)).batches(3, first=-1)), ValueError, "first must be the number of a step"),
        (lambda: next(ig.Stream((X, Y)).batches(N + 1)), ValueError, "batch_size must be a whole number from 1 to"),
        (lambda: next(ig.Stream((X, Y)).rows(100, (0,), 0, 0, 8)), ValueError, "cannot be shared by 8 processes"),
        (lambda: ig.Stream([(X, Y)], num_data=N + 1).sample(), ValueError, "batches end before row 1001"),
        (lambda: ig.Stream([(X, Y)], num_data=N - 1).sample(), ValueError, "more than num_data=999"),
        (lambda: ig.Stream([[X, Y]], num_data=N).sample(), TypeError, "a batch must be"),
        (lambda: ig.Stream([(X, Y[1:])], num_data=N).sample(), ValueError, r"equally many rows, got \[1000, 999\]"),
        (lambda: ig.Stream([(X, Y), (X[:, :1], Y)], num_data=2 * N).sample(), ValueError, r"a batch has \[1, 2\] col"),
        (lambda: ig.Stream([{"a": Y}], x="a", y="b", num_data=N).sample(), ValueError, "a batch has no column 'b'"),
        (lambda: ig.Stream(X, x=0, y=2), ValueError, "numbered from 0 to 1, got 2"),
        (lambda: ig.Stream(X, x="a", y=1), ValueError, "numbered from 0 to 1, got 'a'"),
    ],
)
def test_what_is_refused(make, error, says, unchecked):
    with pytest.raises(error, match=says):
        make()


def test_errors_of_the_reading_thread_are_raised_where_rows_are_used():
    def batches():
        yield X, Y
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        list(ig.Stream(batches, num_data=2 * N).chunks(100))


def test_a_stream_of_any_dtype():
    assert next(ig.Stream((X.astype(np.float32), Y.astype(np.float32))).batches(4)).x.dtype == jax.numpy.float32


def gp(P=1):
    prior = ig.GP(ig.kernels.Matern52()) if P == 1 else ig.priors.Independent(ig.kernels.Matern52(), P)
    return ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(X[:4])), ig.likelihoods.Gaussian(0.1))


@pytest.mark.parametrize("P", [1, 2])
def test_predictions_of_files(tmp_path, P):
    """In the order of the rows, and the same as in memory; of CSV and Parquet files."""
    for kind in ("parquet", "csv"):
        write(tmp_path, kind)
        written = ig.predict_files(gp(P), f"{tmp_path}/*.{kind}", tmp_path / kind, x=["a", "b"], level=0.9)
        assert [path.name for path in written] == ["0.parquet", "1.parquet", "2.parquet"]
        table = pa.parquet.read_table(tmp_path / kind)
        expected = gp(P).predict(X)
        lower, upper = expected.interval(0.9)
        for name, values in {
            "mean": expected.mean,
            "variance": expected.variance,
            "lower": lower,
            "upper": upper,
        }.items():
            found = [table[name if P == 1 else f"{name}_{p}"] for p in range(P)]
            np.testing.assert_allclose(np.stack(found, axis=1), values, rtol=1e-9)
    assert not list((tmp_path / "csv").glob(".*"))


def test_what_predict_files_refuses(tmp_path):
    write(tmp_path, "parquet")
    with pytest.raises(ValueError, match=r"has the columns 'id', 'a'.* 2 inputs"):
        ig.predict_files(gp(), tmp_path, tmp_path / "out")
    (tmp_path / "more").mkdir()
    write(tmp_path / "more", "csv")
    with pytest.raises(ValueError, match=r"several files would become 0\.parquet"):
        ig.predict_files(gp(), tmp_path, tmp_path / "out", x=["a", "b"])
    with pytest.raises(ValueError, match="no column 'z'"):
        ig.predict_files(gp(), tmp_path / "0.parquet", tmp_path / "out", x=["a", "z"])
    assert not list((tmp_path / "out").iterdir())


def test_a_file_system_of_another_kind_is_refused():
    with pytest.raises(TypeError, match=r"filesystem must be a file system of pyarrow\.fs, got 'local'"):
        ig.Stream("rows/*.parquet", x=["a"], y="u", filesystem="local")
