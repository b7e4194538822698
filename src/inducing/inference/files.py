"""Predictions of the rows of files, written to files."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inducing._xla import process
from inducing.checks import check_model
from inducing.declared import shown
from inducing.inference.predict import predict
from inducing.parameters import as_path, as_probability, dtype_of, one_or_several
from inducing.streams.source import Rows, padded
from inducing.streams.tables import Columns, File, Tables, files_of, names_in, pyarrow

if TYPE_CHECKING:
    from inducing.model import Model

ROWS = 2**14  # predicted at a time; always the same number, so that only one program is compiled


def predict_files(
    model: "Model", source: Any, folder: Any, *, x: Any = None, level: float = 0.95, filesystem: Any = None
) -> list[Path]:
    """Predict the rows of files, and write a Parquet file for each of them.

    A file `new/a.parquet` becomes `folder/a.parquet`, whose rows have the order of the file. Its columns are `mean`,
    `variance`, `lower` and `upper`, the ends of the central interval; with several outputs `mean_0`, `mean_1`, …. Rows
    are read block by block. With several processes, each predicts its share of the files. Files are written atomically.

    Args:
        model: a trained model.
        source: a path, a folder, a pattern or a list of these, as for `ig.Stream`.
        folder: the folder to write to, which is created if it does not exist.
        x: the names of the columns of inputs. By default all columns of the files, in their order.
        level: the probability of the interval.
        filesystem: a file system of pyarrow that opens the paths.

    Returns:
        The files that this process has written.

    Raises:
        ImportError: if pyarrow is not installed.
        FileNotFoundError: if no file has that name.
        ValueError: if two files have the same name, or columns are missing, too many or do not hold numbers.

    Examples:
        >>> import tempfile
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "new.csv").write_text("time\\n0.5\\n0.7\\n")
        >>> written = predict_files(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), folder, folder / "predicted")
        >>> [path.name for path in written]
        ['new.parquet']
    """
    check_model(model)
    folder = as_path(folder, "folder")
    level = float(as_probability("level", level))
    fs, files = files_of(_paths(source), filesystem)
    targets = [folder / (Path(file.path).name.split(".")[0] + ".parquet") for file in files]
    if len(set(targets)) < len(targets):
        twice = next(path.name for path in targets if targets.count(path) > 1)
        raise ValueError(f"several files would become {twice}; predict them into different folders.")
    names = [x] if isinstance(x, str) else x
    if names is None:
        names = names_in(files[0], fs)
        expected = model.layers[0].num_inputs
        if expected is not None and len(names) != expected:
            raise ValueError(
                f"{files[0].path} has the columns {', '.join(map(repr, names))}, and the model has {expected} inputs; "
                "name their columns by x=[...]."
            )
    folder.mkdir(parents=True, exist_ok=True)
    own, of = process()
    for file, target in list(zip(files, targets, strict=True))[own::of]:
        _write(model, file, fs, list(names), target, level)
    return targets[own::of]


def _paths(source: Any) -> list[str]:
    paths = one_or_several(source) if not isinstance(source, str) else (source,)
    if not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise TypeError(f"source must be a path or a list of paths, got {shown(source)}.")
    return [os.fspath(path) for path in paths]


def _write(model: "Model", file: File, filesystem: Any, names: list[str], target: Path, level: float) -> None:
    """Predict a file into another one that takes its place when it is complete."""
    pa = pyarrow()
    source = Tables([file], filesystem, Columns(names, [], None, None))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    writer = None
    try:
        for rows in source.replay():
            table = pa.table(_columns(model, rows, level))
            writer = pa.parquet.ParquetWriter(temporary, table.schema) if writer is None else writer
            writer.write_table(table)
        assert writer is not None  # because a source has rows
        writer.close()
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _columns(model: "Model", rows: Rows, level: float) -> dict[str, np.ndarray]:
    """The columns of the predictions of some rows."""
    pieces = []
    for first in range(0, len(rows), ROWS):
        some = rows.take(slice(first, first + ROWS))
        X = padded(some, ROWS).x
        assert X is not None
        prediction = predict(model, X.astype(dtype_of(model)))
        lower, upper = prediction.interval(level)
        parts = (prediction.mean, prediction.variance, lower, upper)
        pieces.append([np.asarray(part)[: len(some)] for part in parts])
    columns = {}
    for name, parts in zip(("mean", "variance", "lower", "upper"), zip(*pieces, strict=True), strict=True):
        values = np.concatenate(parts)
        for p in range(values.shape[1]):
            columns[name if values.shape[1] == 1 else f"{name}_{p}"] = values[:, p]
    return columns
