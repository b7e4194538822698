"""The rules that decide how each column of a table is encoded, with reasons for the user."""

import re
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from inducing.tables.cells import CURRENCIES, as_days, as_numbers, date_formats
from inducing.tables.columns import (
    PERIODS,
    AbstractColumn,
    Category,
    Date,
    LeftOut,
    Number,
    YesNo,
    days_of,
    is_text,
    numbers_of,
    texts_of,
)

MOSTLY = 0.9  # the smallest share of cells of text that are numbers or dates; the others then count as gaps
UNIQUE = 0.5  # text with more different values than this share of the rows is an identifier or free text
RARE, MOST = 3, 100  # the fewest rows of a category, and the most categories; all others are "other"
COVERED = 0.3  # the smallest share of the rows that have one of the kept categories
EMBEDDED, ROWS = 9, 10  # the fewest categories with an embedding, and the fewest rows for each; fewer rows overfit
IDENTIFIER = re.compile(r"|index|row|unnamed.*|(.*[\W_])?(id|uuid|guid)|.*[a-z](ID|Id)", re.IGNORECASE)


class Options(NamedTuple):
    """Settings of the user.

    Attributes:
        categorical: columns that are categories.
        typed: columns whose type says that they are categories.
        date_format: the format of dates; None to detect it.
        decimal: the decimal mark of numbers in text.
    """

    categorical: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    date_format: str | None = None
    decimal: str = "."


def decide(name: str, cells: pa.Array, options: Options) -> AbstractColumn:
    """Decide how an input column is encoded.

    Args:
        name: the name of the column.
        cells: its cells in the training rows.
        options: settings of the user.

    Returns:
        The encoding.

    Raises:
        ValueError: if numbers have several currencies or another decimal mark, or if it is not clear which part of a
            date is the day.

    Examples:
        >>> decide("price", pa.array(["$1.50", "$2", None]), Options()).described
        'number in $, gaps filled with the median 1.75, with an indicator'
    """
    seen = len(cells) - cells.null_count
    if not seen:
        return LeftOut(name, "it is empty")
    kind = cells.type
    unknown = pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if unknown or isinstance(kind, pa.BaseExtensionType):
        return LeftOut(name, f"it holds values of type {kind}")
    if name in options.categorical:
        return _category(name, cells, "as requested", unique=1.0)
    if name in options.typed:
        return _category(name, cells, "its type is categorical", unique=1.0)
    if pa.types.is_boolean(kind):
        return _yes_no(name, cells, ["False", "True"], "its values are true and false")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _date(name, cells, "iso", "its values are dates")
    if is_text(cells):
        return _text(name, cells, options)
    unit = "hours" if pa.types.is_time(kind) or pa.types.is_duration(kind) else ""
    return _number(name, cells, "its values are numbers", options.decimal, unit)


def _number(
    name: str, cells: pa.Array, reason: str, decimal: str = ".", unit: str = "", words: tuple[str, ...] = ()
) -> AbstractColumn:
    values, _ = numbers_of(cells, decimal)
    present = values[~np.isnan(values)]
    if not len(present):
        return LeftOut(name, "it has no finite values")
    if len(present) == len(values) and (present == present[0]).all():
        return LeftOut(name, f"every row has the same value, {present[0]:.6g}")
    if IDENTIFIER.fullmatch(name) and (present == np.round(present)).all() and len(np.unique(present)) == len(present):
        return LeftOut(name, "an identifier, by its name and because all values are different")
    return Number(name, reason, float(np.median(present)), bool(len(present) < len(values)), decimal, unit, words)


def _text(name: str, cells: pa.Array, options: Options) -> AbstractColumn:
    texts, indices = texts_of(cells)
    if not texts:
        return LeftOut(name, "it is empty")
    weights = np.bincount(indices[indices >= 0], minlength=len(texts))
    if (found := _text_date(name, cells, texts, weights, options)) is not None:
        return found
    numbers, units = as_numbers(texts, options.decimal)
    share = weights[~np.isnan(numbers)].sum() / weights.sum()
    if share >= MOSTLY:
        money = sorted(unit for unit in units if any(sign in unit for sign in CURRENCIES))
        if len(money) > 1:
            raise ValueError(
                f"column {name!r} has amounts in several currencies ({', '.join(money)}); convert them, or leave the "
                f"column out (drop={name!r}, on the command line --drop {name!r})."
            )
        if len(units) <= 1:
            words = _without_value(texts, numbers)
            return _number(name, cells, "its texts are numbers", options.decimal, next(iter(units), ""), words)
    _refuse_other_decimal(name, texts, options.decimal)
    if len(texts) == 2:
        return _yes_no(name, cells, sorted(texts), "it has two values")
    return _category(name, cells, "it holds text", unique=UNIQUE)


def _refuse_other_decimal(name: str, texts: list[str], decimal: str) -> None:
    other = "," if decimal == "." else "."
    here, there = (np.mean(~np.isnan(as_numbers(texts, mark).values)) for mark in (decimal, other))
    if there >= MOSTLY > here:
        example = next(t for t in texts if np.isnan(as_numbers([t], decimal).values[0]))
        raise ValueError(
            f"column {name!r} has the value {example!r}, whose decimal mark seems to be {other!r}; pass "
            f"decimal={other!r} (on the command line, --decimal {other!r}), or leave the column out."
        )


def _text_date(name: str, cells: pa.Array, texts: list[str], weights: np.ndarray, options: Options) -> Any:
    if options.date_format is not None:
        days = as_days(texts, options.date_format)
        if weights[~np.isnan(days)].sum() >= MOSTLY * weights.sum():
            return _date(name, cells, options.date_format, "its texts are dates", _without_value(texts, days))
    if any(text.isdigit() and len(text) != 8 for text in texts):  # 20200131 may be a date
        return None
    formats = date_formats(texts)
    if len(formats) > 1:
        first, second = (as_days(texts, f) for f in formats[:2])
        if (first != second).any():
            raise ValueError(
                f"column {name!r} has dates such as {texts[int(np.argmax(first != second))]!r}, which could be "
                f"{formats[0]} or {formats[1]}; pass one of them, such as date_format={formats[0]!r} (on the command "
                f"line, --date-format {formats[0]!r})."
            )
    return _date(name, cells, formats[0], "its texts are dates") if formats else None


def _without_value(texts: list[str], values: np.ndarray) -> tuple[str, ...]:
    return tuple(text for text, value in zip(texts, values, strict=True) if np.isnan(value))


def _date(name: str, cells: pa.Array, date_format: str, reason: str, words: tuple[str, ...] = ()) -> AbstractColumn:
    days, _ = days_of(cells, date_format)
    present = days[~np.isnan(days)]
    if not len(present):
        return LeftOut(name, "it is empty")
    if len(present) == len(days) and (present == present[0]).all():
        return LeftOut(name, "every row has the same date")
    periods = tuple(period for period, length in PERIODS.items() if _goes_round(present, period, length))
    return Date(name, reason, float(np.median(present)), bool(len(present) < len(days)), date_format, periods, words)


def _goes_round(days: np.ndarray, period: str, length: float) -> bool:
    """Whether dates are dense enough to show a periodic effect, and cover more than one period."""
    places = len(np.unique(np.round(np.mod(days, length) / length * 24)))
    least = 7 if period == "weekday" else 5  # of 25 phases; dates once a year, or at midnight, have one
    different = np.unique(days)
    close = np.median(np.diff(different)) <= 0.25 * length if len(different) > 1 else False
    return bool(np.ptp(days) >= 1.5 * length and places >= least and close)


def _yes_no(name: str, cells: pa.Array, values: list[str], reason: str) -> AbstractColumn:
    texts, indices = texts_of(cells)
    seen = [texts[i] for i in indices if i >= 0] if len(texts) < 2 else None
    if seen is not None and len(seen) == len(indices):
        return LeftOut(name, f"every row has the same value, {texts[0]!r}")
    ones = np.sum(indices == texts.index(values[1])) if values[1] in texts else 0
    fill = float(ones > 0.5 * np.sum(indices >= 0))
    return YesNo(name, reason, (values[0], values[1]), fill, bool((indices < 0).any()))


def _category(name: str, cells: pa.Array, reason: str, unique: float) -> AbstractColumn:
    texts, indices = texts_of(cells)
    present = indices[indices >= 0]
    counts = np.bincount(present, minlength=len(texts))
    if len(texts) > max(unique * len(present), 2):
        words = np.mean([len(text.split()) for text in texts])
        what = "free text" if words > 3 else "an identifier or free text"
        return LeftOut(name, f"{what}, with {len(texts):,} different values in {len(present):,} rows")
    if len(texts) == 1 and len(present) == len(indices):
        return LeftOut(name, f"every row has the same value, {texts[0]!r}")
    least = max(RARE, len(present) // 1000)
    order = np.argsort(-counts, kind="stable")
    kept = [i for i in order if counts[i] >= least][:MOST]
    if not kept:
        return LeftOut(name, f"each of its {len(texts):,} values occurs in fewer than {least} rows")
    covered = int(counts[kept].sum())
    if covered < COVERED * len(present):
        said = f"its {len(kept):,} most frequent values cover only {covered / len(present):.0%} of the rows"
        return LeftOut(name, f"{len(texts):,} different values, and {said}")
    values = sorted((texts[i] for i in kept), key=_natural)
    fill = values.index(texts[kept[0]])
    other = len(kept) < len(texts)
    num = len(kept) + other
    embedded = bool(num >= EMBEDDED and covered >= ROWS * len(kept))
    return Category(name, reason, tuple(values), other, fill, bool((indices < 0).any()), embedded)


def _natural(text: str) -> tuple[float, str]:
    """A key that sorts numbers by value, before words."""
    value = as_numbers([text]).values[0]
    return (np.inf if np.isnan(value) else float(value), text)
