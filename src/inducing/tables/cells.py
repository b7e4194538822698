"""Parsing of cells of text: numbers with units and separators, and dates."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

MISSING = ("", "#N/A", "#NA", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "none", "?")
CURRENCIES = "$€£¥₹"
SPACES = " \u00a0\u202f"
FORMATS = ("iso", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%Y/%m/%d", "%m/%d/%y", "%d/%m/%y", "%d-%b-%Y", "%d %b %Y")
FORMATS += ("%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%Y%m%d")
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_NUMBER = re.compile(
    rf"""\s*(?P<open>\()?\s*(?P<sign>[-+−])?\s*(?P<before>[{CURRENCIES}]|[A-Z]{{3}}\s|US\$)?\s*(?P<sign2>[-−])?
    (?P<digits>\d{{1,3}}(?:(?P<mark>[,.'{SPACES}])\d{{3}})(?:(?P=mark)\d{{3}})*(?:[.,]\d+)?|\d+(?:[.,]\d*)?|[.,]\d+)
    (?P<power>[eE][-+]?\d+)?\s*(?P<after>%|[A-Za-z°µ²³/{CURRENCIES}]{{1,8}})?\s*(?P<close>\))?\s*""",
    re.VERBOSE,
)


class Numbers(NamedTuple):
    """Parsed numbers, NaN where a text is not a number, and the units that were found with them."""

    values: np.ndarray
    units: frozenset[str]


def as_numbers(texts: Sequence[str], decimal: str = ".") -> Numbers:
    """Parse numbers with thousands separators, currency signs, percent signs and units.

    Args:
        texts: the text of each cell.
        decimal: the decimal mark, "." or ",".

    Returns:
        The numbers, and the units.

    Examples:
        >>> as_numbers(["$1,250.50", "($3)", "7 %", "red", "1,5"]).values.tolist()
        [1250.5, -3.0, 7.0, nan, nan]
        >>> as_numbers(["1.250,5"], decimal=",").values.tolist()
        [1250.5]
    """
    found = [_number(text, decimal) for text in texts]
    values = np.array([np.nan if f is None else f[0] for f in found], float)
    return Numbers(values, frozenset(f[1] for f in found if f is not None and f[1]))


def _number(text: str, decimal: str) -> tuple[float, str] | None:
    match = _NUMBER.fullmatch(text)
    if match is None or bool(match["open"]) != bool(match["close"]) or (match["before"] and match["after"]):
        return None
    digits = _digits(match["digits"], match["mark"], decimal)
    if digits is None:
        return None
    value = float(digits + (match["power"] or ""))
    negative = match["open"] or any(sign in ("-", "−") for sign in (match["sign"], match["sign2"]))
    return (-value if negative else value), (match["before"] or match["after"] or "").strip()


def _digits(digits: str, mark: str | None, decimal: str) -> str | None:
    """Digits with a decimal point, without thousands separators; None if they contradict the decimal mark."""
    if mark is not None and mark != decimal:
        digits = digits.replace(mark, "")
    other = "," if decimal == "." else "."
    return None if other in digits or digits.count(decimal) > 1 else digits.replace(decimal, ".")


def as_days(texts: Sequence[str], date_format: str) -> np.ndarray:
    """Parse dates, with or without a time, as days since 1970.

    Args:
        texts: the text of each cell.
        date_format: "iso", or a format of `datetime.strptime`. A time may follow the date.

    Returns:
        Days, NaN where a text is not a date of this format.

    Examples:
        >>> as_days(["01/31/1970 12:00", "31/01/1970"], "%m/%d/%Y").tolist()
        [30.5, nan]
    """
    return np.array([_days(text.strip(), date_format) for text in texts], float)


def _days(text: str, date_format: str) -> float:
    if date_format == "iso":
        try:
            moment = datetime.fromisoformat(text) if "-" in text else None
        except ValueError:
            moment = None
    else:
        moment = next((m for time in TIMES if (m := _strptime(text, date_format + time))), None)
    if moment is None:
        return np.nan
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() / 86400


def _strptime(text: str, date_format: str) -> datetime | None:
    try:
        return datetime.strptime(text, date_format)
    except ValueError:
        return None


def date_formats(texts: Sequence[str]) -> list[str]:
    """The common formats in which every text is a date.

    Args:
        texts: the text of each cell that is not empty.

    Returns:
        Formats. There are several if it is not clear which part is the day.

    Examples:
        >>> date_formats(["01/31/2020"]), date_formats(["01/02/2020"])
        (['%m/%d/%Y'], ['%m/%d/%Y', '%d/%m/%Y'])
    """
    some = list(texts[:50])
    fitting = [f for f in FORMATS if some and not np.isnan(as_days(some, f)).any()]
    return [f for f in fitting if not np.isnan(as_days(texts, f)).any()]
