"""The kinds of input columns. Each is a plain value that encodes cells as numbers."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from inducing.tables.cells import as_days, as_numbers

OTHER = "other"
PERIODS = {"time of year": 365.2425, "weekday": 7.0, "time of day": 1.0}  # in days


class Encoded(NamedTuple):
    """An encoded column.

    Attributes:
        values: the numbers [N, K].
        unusable: the rows [N] whose cell cannot be read as the kind of the column.
        gaps: the rows [N] whose cell is empty.
        unseen: the rows [N] whose category is rare or absent in the training rows.
    """

    values: np.ndarray
    unusable: np.ndarray
    gaps: np.ndarray
    unseen: np.ndarray


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class AbstractColumn(abc.ABC):
    """A column of a table, and how its cells are encoded.

    Args:
        name: the name of the column.
        reason: why this kind was chosen.
    """

    kind: ClassVar[str]
    name: str
    reason: str

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""

    @property
    @abc.abstractmethod
    def described(self) -> str:
        """The encoding, in a few words."""

    @abc.abstractmethod
    def encode(self, cells: pa.Array) -> Encoded:
        """Encode cells.

        Args:
            cells: a pyarrow array of any type.

        Returns:
            Numbers [N, K] without gaps, and which rows are unusual.
        """

    def to_json(self) -> dict[str, Any]:
        """The column as a JSON value."""
        return {"kind": self.kind, **vars(self)}


@dataclasses.dataclass(frozen=True)
class Number(AbstractColumn):
    """A column of numbers.

    Args:
        name: the name of the column.
        reason: why this kind was chosen.
        fill: the median, which replaces gaps.
        gaps: whether there is an indicator column for gaps.
        decimal: the decimal mark of numbers that are stored as text.
        unit: the unit of the numbers, such as "$".
        words: texts that count as gaps.
    """

    kind: ClassVar[str] = "number"
    fill: float
    gaps: bool
    decimal: str = "."
    unit: str = ""
    words: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return _with_gaps(self.name, (self.name,), self.gaps)

    @property
    def described(self) -> str:
        unit = f" in {self.unit}" if self.unit else ""
        words = _gap_words(self.words)
        return f"number{unit}{words}" + (
            f", gaps filled with the median {self.fill:.6g}, with an indicator" if self.gaps else ""
        )

    def encode(self, cells: pa.Array) -> Encoded:
        values, wrong = numbers_of(cells, self.decimal, self.words)
        return _filled(values[:, None], np.array([self.fill]), np.isnan(values) & ~wrong, wrong, self.gaps)


@dataclasses.dataclass(frozen=True)
class Date(AbstractColumn):
    """A column of dates, encoded as days since 1970 and, for dense dates, as sine and cosine of periods.

    Args:
        name: the name of the column.
        reason: why this kind was chosen.
        fill: the median day, which replaces gaps.
        gaps: whether there is an indicator column for gaps.
        date_format: the format of dates that are stored as text.
        periods: the periods, keys of `PERIODS`.
        words: texts that count as gaps.
    """

    kind: ClassVar[str] = "date"
    fill: float
    gaps: bool
    date_format: str
    periods: tuple[str, ...]
    words: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        circles = [f"{self.name} ({period}, {part})" for period in self.periods for part in ("sin", "cos")]
        return _with_gaps(self.name, (self.name, *circles), self.gaps)

    @property
    def described(self) -> str:
        parts = ["days", *self.periods]
        how = "" if self.date_format == "iso" else f" in the format {self.date_format}"
        filled = ", gaps filled with the median, with an indicator" if self.gaps else ""
        words = _gap_words(self.words)
        return f"date{how}, encoded as {', '.join(parts)}{words}{filled}"

    def encode(self, cells: pa.Array) -> Encoded:
        days, wrong = days_of(cells, self.date_format, self.words)
        gaps = np.isnan(days) & ~wrong
        days = np.where(np.isnan(days), self.fill, days)
        turns = [2 * np.pi * days / PERIODS[period] for period in self.periods]
        columns = [days, *(f(turn) for turn in turns for f in (np.sin, np.cos))]
        return _filled(np.stack(columns, axis=1), np.zeros(len(columns)), gaps, wrong, self.gaps)


@dataclasses.dataclass(frozen=True)
class YesNo(AbstractColumn):
    """A column of two values, encoded as 0 and 1.

    Args:
        name: the name of the column.
        reason: why this kind was chosen.
        values: the two values; the second becomes 1.
        fill: the more frequent one of 0 and 1, which replaces gaps.
        gaps: whether there is an indicator column for gaps.
    """

    kind: ClassVar[str] = "yes/no"
    values: tuple[str, str]
    fill: float
    gaps: bool

    @property
    def names(self) -> tuple[str, ...]:
        return _with_gaps(self.name, (f"{self.name} = {self.values[1]}",), self.gaps)

    @property
    def described(self) -> str:
        filled = f", gaps filled with {self.values[int(self.fill)]!r}, with an indicator" if self.gaps else ""
        return f"0 for {self.values[0]!r}, 1 for {self.values[1]!r}{filled}"

    def encode(self, cells: pa.Array) -> Encoded:
        codes, gaps = codes_of(cells, self.values)
        unseen = codes == len(self.values)
        values = np.where(gaps | unseen, self.fill, codes)[:, None]
        return Encoded(_marked(values, gaps | unseen, self.gaps), np.zeros(len(gaps), bool), gaps, unseen)


@dataclasses.dataclass(frozen=True)
class Category(AbstractColumn):
    """A column of categories, each encoded as a column of 0 and 1.

    Args:
        name: the name of the column.
        reason: why this kind was chosen.
        values: the categories with a column of their own.
        other: whether rare categories share a column, "other". Unseen categories then belong to it too.
        fill: the position of the most frequent category, which replaces gaps.
        gaps: whether there is an indicator column for gaps.
        embedded: whether the kernel learns an embedding of the categories.
    """

    kind: ClassVar[str] = "category"
    values: tuple[str, ...]
    other: bool
    fill: int
    gaps: bool
    embedded: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        values = (*self.values, OTHER) if self.other else self.values
        return _with_gaps(self.name, tuple(f"{self.name} = {value}" for value in values), self.gaps)

    @property
    def num_values(self) -> int:
        """The number of columns of 0 and 1, without the indicator of gaps."""
        return len(self.values) + self.other

    @property
    def described(self) -> str:
        shown = ", ".join(self.values[:6]) + (", …" if len(self.values) > 6 else "")
        rare = f', rare values are "{OTHER}"' if self.other else ""
        filled = f", gaps filled with {self.values[self.fill]!r}, with an indicator" if self.gaps else ""
        learned = ", with a learned embedding" if self.embedded else ""
        return f"{len(self.values)} categories ({shown}){rare}{learned}{filled}"

    def encode(self, cells: pa.Array) -> Encoded:
        codes, gaps = codes_of(cells, self.values)
        unseen = codes == len(self.values)
        hot = np.where(gaps, self.fill, codes)[:, None] == np.arange(self.num_values)
        return Encoded(_marked(hot.astype(float), gaps, self.gaps), np.zeros(len(gaps), bool), gaps, unseen)


@dataclasses.dataclass(frozen=True)
class LeftOut(AbstractColumn):
    """A column that is not used: an identifier, free text, or a column that the user excludes.

    Args:
        name: the name of the column.
        reason: why it is left out.
    """

    kind: ClassVar[str] = "left out"

    @property
    def names(self) -> tuple[str, ...]:
        return ()

    @property
    def described(self) -> str:
        return f"left out: {self.reason}"

    def encode(self, cells: pa.Array) -> Encoded:
        no = np.zeros(len(cells), bool)
        return Encoded(np.zeros((len(cells), 0)), no, no, no)


KINDS: dict[str, type[AbstractColumn]] = {c.kind: c for c in (Number, Date, YesNo, Category, LeftOut)}


def column_from_json(stored: Mapping[str, Any]) -> AbstractColumn:
    """The column that `to_json` returned.

    Args:
        stored: the JSON value.

    Returns:
        The column.

    Raises:
        ValueError: if it is not a column.

    Examples:
        >>> column_from_json({"kind": "left out", "name": "id", "reason": "an identifier"}).described
        'left out: an identifier'
    """
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items() if k != "kind"}
    try:
        return KINDS[stored["kind"]](**values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"it does not describe a column: {stored}") from error


def _gap_words(words: Sequence[str]) -> str:
    if not words:
        return ""
    shown = ", ".join(map(repr, words[:3])) + (", …" if len(words) > 3 else "")
    return f", {shown} {'counts as a gap' if len(words) == 1 else 'count as gaps'}"


def _with_gaps(name: str, names: tuple[str, ...], gaps: bool) -> tuple[str, ...]:
    return (*names, f"{name} is missing") if gaps else names


def _marked(values: np.ndarray, gaps: np.ndarray, marked: bool) -> np.ndarray:
    return np.concatenate([values, gaps[:, None].astype(float)], axis=1) if marked else values


def _filled(values: np.ndarray, fill: np.ndarray, gaps: np.ndarray, wrong: np.ndarray, marked: bool) -> Encoded:
    values = np.where(np.isnan(values), fill[None, :], values)
    return Encoded(_marked(values, gaps, marked), wrong, gaps, np.zeros(len(gaps), bool))


def is_text(cells: pa.Array) -> bool:
    """Whether a column contains text.

    Examples:
        >>> is_text(pa.array(["a"])), is_text(pa.array([1]))
        (True, False)
    """
    return pa.types.is_string(cells.type) or pa.types.is_null(cells.type)


def texts_of(cells: pa.Array) -> tuple[list[str], np.ndarray]:
    """The distinct texts of a column, without surrounding spaces, and the position of each row's text; −1 for gaps.

    Whole numbers are written without a decimal point, so that 8 and 8.0 are the same category.

    Examples:
        >>> texts_of(pa.array([8.0, None, 1.5]))
        (['8', '1.5'], array([ 0, -1,  1]))
    """
    found = (cells if not pa.types.is_null(cells.type) else cells.cast(pa.string())).dictionary_encode()
    values = [_text(value) for value in found.dictionary.to_pylist()]
    texts = list(dict.fromkeys(value for value in values if value))  # a cell of spaces is a gap
    place = {text: i for i, text in enumerate(texts)}
    code = np.array([place.get(value, -1) for value in values] + [-1])
    gaps, indices = cells.is_null().to_numpy(zero_copy_only=False), found.indices.to_numpy(zero_copy_only=False)
    return texts, code[np.where(gaps, len(values), indices).astype(int)]


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, float) and np.isnan(value):
        return ""
    return str(value).strip()


def codes_of(cells: pa.Array, values: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The position of each row's category, `len(values)` for other values, −1 for gaps; and which rows are gaps.

    Examples:
        >>> codes_of(pa.array(["b", "c", None]), ("a", "b"))
        (array([ 1,  2, -1]), array([False, False,  True]))
    """
    texts, indices = texts_of(cells)
    place = {value: i for i, value in enumerate(values)}
    code = np.array([place.get(text, len(values)) for text in texts] + [-1])
    return code[indices], indices < 0


def numbers_of(cells: pa.Array, decimal: str, words: Sequence[str] = ()) -> tuple[np.ndarray, np.ndarray]:
    """A column as numbers, NaN for gaps; and which rows are neither numbers nor words that count as gaps.

    Examples:
        >>> numbers_of(pa.array(["1.5", "red", None]), ".")
        (array([1.5, nan, nan]), array([False,  True, False]))
    """
    if is_text(cells):
        texts, indices = texts_of(cells)
        values = np.append(as_numbers(texts, decimal).values, np.nan)[indices]
        return values, np.isnan(values) & _others(texts, words)[indices]
    if pa.types.is_temporal(cells.type):
        if not (pa.types.is_time(cells.type) or pa.types.is_duration(cells.type)):
            return np.full(len(cells), np.nan), np.asarray(cells.is_valid())
        fine = pa.duration("us") if pa.types.is_duration(cells.type) else pa.time64("us")
        cells = cells.cast(fine, safe=False)
        values = _floats(cells.cast(pa.int64())) / 3.6e9
    elif not _is_numeric(cells.type):
        return np.full(len(cells), np.nan), np.asarray(cells.is_valid())
    else:
        values = _floats(cells)
    return np.where(np.isfinite(values), values, np.nan), np.zeros(len(values), bool)


def _is_numeric(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    )


def _floats(cells: pa.Array) -> np.ndarray:
    kind = pa.float64() if not pa.types.is_boolean(cells.type) else pa.int8()
    if pa.types.is_float16(cells.type):
        return np.asarray(cells.to_numpy(zero_copy_only=False), float)
    return cells.cast(kind, safe=False).cast(pa.float64()).to_numpy(zero_copy_only=False)


def days_of(cells: pa.Array, date_format: str, words: Sequence[str] = ()) -> tuple[np.ndarray, np.ndarray]:
    """A column as days since 1970, NaN for gaps; and which rows are neither dates nor words that count as gaps.

    Examples:
        >>> days_of(pa.array(["1970-01-03", "soon", None]), "iso")
        (array([ 2., nan, nan]), array([False,  True, False]))
    """
    if pa.types.is_date(cells.type) or pa.types.is_timestamp(cells.type):
        zone = cells.type.tz if pa.types.is_timestamp(cells.type) else None
        moments = cells.cast(pa.timestamp("us", tz=zone), safe=False)
        return _floats(moments.cast(pa.int64())) / 86400e6, np.zeros(len(cells), bool)
    texts, indices = texts_of(cells)
    days = np.append(as_days(texts, date_format), np.nan)[indices]
    return days, np.isnan(days) & _others(texts, words)[indices]


def _others(texts: list[str], words: Sequence[str]) -> np.ndarray:
    """Which texts are not words that count as gaps; with False at the end, for gaps themselves."""
    return np.array([*(text not in words for text in texts), False])
