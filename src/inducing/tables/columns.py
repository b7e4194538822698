"""What was decided for each column of the inputs: a plain value for each kind, which encodes cells as numbers."""

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
    """A column as numbers.

    Attributes:
        values: the numbers [N, K].
        unusable: rows [N] whose cell is not of the column's kind.
        gaps: rows [N] whose cell is empty.
        unseen: rows [N] whose category is not one of the training rows'.
    """

    values: np.ndarray
    unusable: np.ndarray
    gaps: np.ndarray
    unseen: np.ndarray


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class AbstractColumn(abc.ABC):
    """A column of a table and how its cells become numbers.

    Args:
        name: the name of the column.
        reason: why it was taken for what it is.
    """

    kind: ClassVar[str]
    name: str
    reason: str

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the numbers."""

    @property
    @abc.abstractmethod
    def described(self) -> str:
        """What becomes of the column, in a few words."""

    @abc.abstractmethod
    def encode(self, cells: pa.Array) -> Encoded:
        """The column as numbers.

        Args:
            cells: a column of pyarrow, of any type.

        Returns:
            Numbers [N, K] without gaps, and which rows need attention.
        """

    def to_json(self) -> dict[str, Any]:
        """The decision as JSON holds it."""
        return {"kind": self.kind, **vars(self)}


@dataclasses.dataclass(frozen=True)
class Number(AbstractColumn):
    """A column of numbers.

    Args:
        name: the name of the column.
        reason: why it was taken for what it is.
        fill: the median, which takes the place of gaps.
        gaps: whether a second number says where there were gaps.
        decimal: the decimal mark of numbers that are stored as text.
        unit: what stands beside the numbers, such as "$".
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
        words = f", {_listed(self.words)} count as gaps" if self.words else ""
        return f"number{unit}{words}" + (
            f", gaps filled with the median {self.fill:.6g} and marked" if self.gaps else ""
        )

    def encode(self, cells: pa.Array) -> Encoded:
        values, wrong = numbers_of(cells, self.decimal, self.words)
        return _filled(values[:, None], np.array([self.fill]), np.isnan(values) & ~wrong, wrong, self.gaps)


@dataclasses.dataclass(frozen=True)
class Date(AbstractColumn):
    """A column of dates, which become days since 1970 and, where they help, points on circles.

    Args:
        name: the name of the column.
        reason: why it was taken for what it is.
        fill: the median day, which takes the place of gaps.
        gaps: whether another number says where there were gaps.
        date_format: the format of dates that are stored as text.
        periods: which parts are periodic, names of `PERIODS`.
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
        filled = ", gaps filled with the median and marked" if self.gaps else ""
        words = f", {_listed(self.words)} count as gaps" if self.words else ""
        return f"date{how} → {', '.join(parts)}{words}{filled}"

    def encode(self, cells: pa.Array) -> Encoded:
        days, wrong = days_of(cells, self.date_format, self.words)
        gaps = np.isnan(days) & ~wrong
        days = np.where(np.isnan(days), self.fill, days)
        turns = [2 * np.pi * days / PERIODS[period] for period in self.periods]
        columns = [days, *(f(turn) for turn in turns for f in (np.sin, np.cos))]
        return _filled(np.stack(columns, axis=1), np.zeros(len(columns)), gaps, wrong, self.gaps)


@dataclasses.dataclass(frozen=True)
class YesNo(AbstractColumn):
    """A column of two values, which become 0 and 1.

    Args:
        name: the name of the column.
        reason: why it was taken for what it is.
        values: the two values; the second becomes 1.
        fill: 0 or 1, the more frequent one, which takes the place of gaps.
        gaps: whether a second number says where there were gaps.
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
        filled = f", gaps filled with {self.values[int(self.fill)]!r} and marked" if self.gaps else ""
        return f"0 for {self.values[0]!r}, 1 for {self.values[1]!r}{filled}"

    def encode(self, cells: pa.Array) -> Encoded:
        codes, gaps = codes_of(cells, self.values)
        unseen = codes == len(self.values)
        values = np.where(gaps | unseen, self.fill, codes)[:, None]
        return Encoded(_marked(values, gaps | unseen, self.gaps), np.zeros(len(gaps), bool), gaps, unseen)


@dataclasses.dataclass(frozen=True)
class Category(AbstractColumn):
    """A column of categories, each of which becomes a column of 0 and 1.

    Args:
        name: the name of the column.
        reason: why it was taken for what it is.
        values: the categories that are kept.
        other: whether rare ones share a column, "other", which unseen ones get too.
        fill: the number of the most frequent category, which takes the place of gaps.
        gaps: whether another number says where there were gaps.
    """

    kind: ClassVar[str] = "category"
    values: tuple[str, ...]
    other: bool
    fill: int
    gaps: bool

    @property
    def names(self) -> tuple[str, ...]:
        values = (*self.values, OTHER) if self.other else self.values
        return _with_gaps(self.name, tuple(f"{self.name} = {value}" for value in values), self.gaps)

    @property
    def num_values(self) -> int:
        """The number of columns of 0 and 1, without that of gaps."""
        return len(self.values) + self.other

    @property
    def described(self) -> str:
        shown = ", ".join(self.values[:6]) + (", …" if len(self.values) > 6 else "")
        rare = f', rare ones are "{OTHER}"' if self.other else ""
        filled = f", gaps filled with {self.values[self.fill]!r} and marked" if self.gaps else ""
        return f"{len(self.values)} categories ({shown}){rare}{filled}"

    def encode(self, cells: pa.Array) -> Encoded:
        codes, gaps = codes_of(cells, self.values)
        unseen = codes == len(self.values)
        hot = np.where(gaps, self.fill, codes)[:, None] == np.arange(self.num_values)
        return Encoded(_marked(hot.astype(float), gaps, self.gaps), np.zeros(len(gaps), bool), gaps, unseen)


@dataclasses.dataclass(frozen=True)
class LeftOut(AbstractColumn):
    """A column that is no input: an identifier, free text, or one that the user does not want.

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
    """The decision that `to_json` gave.

    Args:
        stored: what JSON held.

    Returns:
        The decision.

    Raises:
        ValueError: if it is none.

    Examples:
        >>> column_from_json({"kind": "left out", "name": "id", "reason": "an identifier"}).described
        'left out: an identifier'
    """
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items() if k != "kind"}
    try:
        return KINDS[stored["kind"]](**values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"it holds no description of a column: {stored}") from error


def _listed(words: Sequence[str]) -> str:
    return ", ".join(map(repr, words[:3])) + (", …" if len(words) > 3 else "")


def _with_gaps(name: str, names: tuple[str, ...], gaps: bool) -> tuple[str, ...]:
    return (*names, f"{name} is missing") if gaps else names


def _marked(values: np.ndarray, gaps: np.ndarray, marked: bool) -> np.ndarray:
    return np.concatenate([values, gaps[:, None].astype(float)], axis=1) if marked else values


def _filled(values: np.ndarray, fill: np.ndarray, gaps: np.ndarray, wrong: np.ndarray, marked: bool) -> Encoded:
    values = np.where(np.isnan(values), fill[None, :], values)
    return Encoded(_marked(values, gaps, marked), wrong, gaps, np.zeros(len(gaps), bool))


def is_text(cells: pa.Array) -> bool:
    """Whether a column holds text.

    Examples:
        >>> is_text(pa.array(["a"])), is_text(pa.array([1]))
        (True, False)
    """
    return pa.types.is_string(cells.type) or pa.types.is_null(cells.type)


def texts_of(cells: pa.Array) -> tuple[list[str], np.ndarray]:
    """The different texts of a column, without spaces around them, and which of them each row holds; −1 for gaps.

    Numbers are written without a decimal point if they are whole, so that 8 and 8.0 are the same category.

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
    """The number of each row's category, `len(values)` for others, −1 for gaps, and which rows are gaps.

    Examples:
        >>> codes_of(pa.array(["b", "c", None]), ("a", "b"))
        (array([ 1,  2, -1]), array([False, False,  True]))
    """
    texts, indices = texts_of(cells)
    place = {value: i for i, value in enumerate(values)}
    code = np.array([place.get(text, len(values)) for text in texts] + [-1])
    return code[indices], indices < 0


def numbers_of(cells: pa.Array, decimal: str, words: Sequence[str] = ()) -> tuple[np.ndarray, np.ndarray]:
    """A column as numbers, NaN for gaps, and which rows hold something else, except for words that count as gaps.

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
    """A column as days since 1970, NaN for gaps, and which rows hold no date, except for words that count as gaps.

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
    """Which texts are none of the words that count as gaps; False at the end, for gaps themselves."""
    return np.array([*(text not in words for text in texts), False])
