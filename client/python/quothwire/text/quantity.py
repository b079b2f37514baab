"""Spans of time and sizes as people write them: one parser and one printer for all parts of Quoth.

A span is in seconds, a size in bytes. A bare number has that unit; text may name others: ``7d``, ``1h30m``,
``500ms``, ``1GiB``, ``10MB``. ``infinity`` means no limit, ``1_000`` and ``1,000`` are a thousand. The output
of `format_span` and `format_size` is valid input with the same value, unless it is rough.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence

from quothwire.errors import QuothError, error, quoted

SPAN_EXAMPLES = "like 7d, 1h30m, 90s, 500ms or infinity"
SIZE_EXAMPLES = "like 1GiB, 64MiB, 10MB, 4096 or infinity"

_TEXT_LENGTH_MAX = 100
"""Longer text is refused at once."""
_WHOLE_MAX = 10**100
"""A larger number is refused: no float is above 10**308."""
_INFINITY = frozenset({"infinity", "inf", "never", "no limit", "unlimited"})
_DIGITS_MAX = 19
"""Before the point, and behind it; the patterns below have this number, too."""
_SCALE: int = 10**_DIGITS_MAX
_NUMBER = r"[0-9]{1,19}(?:\.[0-9]{1,19})?(?:[eE]\+?[0-9]{1,2})?"
_SEPARATORS = r"(?<=[0-9])_(?=[0-9])|(?<![0-9.,])(?=[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,]))[0-9,]+"
"""An underscore between digits, or a number with commas between groups of three digits."""
_STEP = r"([0-9]{1,19})(?:\.([0-9]{1,19}))?\s*([^\W\d_]+)\s*"

_SPAN_UNITS = (  # the largest first, as they are printed
    (604_800_000_000, ("w", "week", "weeks")),
    (86_400_000_000, ("d", "day", "days")),
    (3_600_000_000, ("h", "hour", "hours", "hr", "hrs")),
    (60_000_000, ("m", "minute", "minutes", "min", "mins")),
    (1_000_000, ("s", "second", "seconds", "sec", "secs")),
    (1_000, ("ms", "millisecond", "milliseconds")),
    (1, ("us", "microsecond", "microseconds", "µs", "μs")),
)
"""Microseconds and the names of each unit: short, singular, plural, and others that the parser accepts."""
_MICROSECONDS = {name: length for length, names in _SPAN_UNITS for name in names}
_PRINTED = _SPAN_UNITS[1:5]
"""Days to seconds. A week is printed as 7 days."""

_PRINTED_SIZES = (
    (2**50, "PiB"),
    (10**15, "PB"),
    (2**40, "TiB"),
    (10**12, "TB"),
    (2**30, "GiB"),
    (10**9, "GB"),
    (2**20, "MiB"),
    (10**6, "MB"),
    (2**10, "KiB"),
    (10**3, "kB"),
)
_SIZE_UNITS = {"b": 1, "byte": 1, "bytes": 1} | {
    name: size for size, unit in _PRINTED_SIZES for name in (unit.lower(), unit.lower()[:-1])
}


def parse_span(given: object, *, infinity: float | None = math.inf) -> float:
    """Read a span of time as seconds: ``7d``, ``1h30m``, ``2.5s``, ``90`` or a number, ``infinity``.

    infinity: the result for an infinite span; None: refuse it. Raises `RequestError` ``bad_setting`` with the
    reason as its text and examples as its hint.
    """
    return _parse(given, "span of time", SPAN_EXAMPLES, _seconds, infinity)


def parse_size(given: object, *, infinity: int | None = None) -> int:
    """Read a size as bytes: ``1GiB`` (1,024 each), ``10MB`` (1,000 each), ``4096`` or a number.

    infinity: the result for ``infinity``; None: refuse it. Raises as `parse_span` does, also for a size that
    is no whole number of bytes.
    """
    return int(_parse(given, "size", SIZE_EXAMPLES, _bytes, infinity))


def is_span(text: str) -> bool:
    """True if the text is a finite span that names its units: ``15m``, but not ``15``."""
    if re.fullmatch(_NUMBER, _without_separators(text)):
        return False
    try:
        return not math.isinf(parse_span(text))
    except QuothError:
        return False


def format_span(seconds: float, *, short: bool = False, rough: bool = False) -> str:
    """Format a span in words, ``1 day 12 hours``, exact to the microsecond.

    A span below a second is in milliseconds or microseconds. short: ``1d12h``, for tables. rough: the two
    largest units only, or three digits below a second.
    """
    if math.isinf(seconds):
        return "infinity"
    left = round(abs(seconds) * 1e6)
    sign = "-" if seconds < 0 and left else ""
    if rough:
        left -= left % _rough_step(left)
    parts: list[str] = []
    *units, smallest = _units(left)
    for unit in units:
        if amount := left - left % unit[0]:
            parts.append(_amount(amount, unit, short))
            left -= amount
    if left or not parts:
        parts.append(_amount(left, smallest, short))
    return sign + ("" if short else " ").join(parts)


def format_size(size: float, *, rough: bool = False) -> str:
    """Format a size: ``64 MiB``, ``10 MB``, ``1.5 GiB``, or ``123,457 bytes`` where no unit is exact.

    rough: three digits of the decimal unit, ``67.1 MB``, for measured values.
    """
    if rough:
        return _rough_size(size)
    if math.isinf(size):
        return "infinity"
    whole = int(size)
    exact = [
        f"{whole * 10 // unit / 10:g} {name}"
        for unit, name in _PRINTED_SIZES
        if whole >= unit and whole * 10 % unit == 0 and whole < unit * 10_000
    ]
    return min(exact, key=len) if exact else f"{whole:,} byte{'' if whole == 1 else 's'}"


# -- reading --------------------------------------------------------------------------------------------

_Wrong = Callable[[str], QuothError]
"""Makes the error for what was given, with the reason."""
_Convert = Callable[[float | str, _Wrong], float]
"""Converts a number, or text with units, to the unit of the result."""


def _parse(given: object, noun: str, examples: str, convert: _Convert, infinity: float | None) -> float:
    """Read a quantity. noun: what it is. infinity: the result for an infinite one, None to refuse it."""

    def wrong(reason: str) -> QuothError:
        hint = examples
        if infinity is None:
            hint = " or ".join(examples.removesuffix(" or infinity").rsplit(", ", 1))
        text = f"{given[:40]}..." if isinstance(given, str) and len(given) > _TEXT_LENGTH_MAX else given
        return error("bad_setting", f"{quoted(text)} is not a {noun}: {reason}", hint)

    if isinstance(given, str):
        given = given.strip()
        found = _number_or_text(given, wrong)
    elif isinstance(given, bool) or not isinstance(given, int | float):
        raise wrong("it is neither a number nor text")
    else:
        found = _checked(given, wrong)
    if found != math.inf:
        return convert(found, wrong)
    if infinity is None:
        raise wrong("it has to be finite here")
    return infinity


def _number_or_text(text: str, wrong: _Wrong) -> float | str:
    """Return the number that a text is, infinity for a word that means it, or the text, which has units."""
    if len(text) > _TEXT_LENGTH_MAX:
        raise wrong(f"it has {len(text):,} characters")
    plain = _without_separators(text)
    if plain.lower() in _INFINITY:
        return math.inf
    if re.fullmatch(_NUMBER, plain):
        return int(plain) if plain.isdigit() else float(plain)
    if not text:
        raise wrong("it is empty")
    if text.startswith("-"):
        raise wrong("it is below 0")
    if not (text[0].isascii() and text[0].isdigit()):
        raise wrong("it does not begin with a number")
    return plain


def _checked(number: float, wrong: _Wrong) -> float:
    if isinstance(number, int) and abs(number) > _WHOLE_MAX:
        raise wrong("it is too large")
    if math.isnan(number):
        raise wrong("it is not a number")
    if number < 0:
        raise wrong("it is below 0")
    return number


def _without_separators(text: str) -> str:
    """Remove the separators of ``1_000`` and ``1,000``. A comma elsewhere stays, and is refused later."""
    return re.sub(_SEPARATORS, lambda found: found[0].replace("_", "").replace(",", ""), text)


def _seconds(given: float | str, wrong: _Wrong) -> float:
    if not isinstance(given, str):
        return float(given)
    total = 0
    while given:
        step = re.match(_STEP, given)
        if step is None:
            has_no_unit = re.fullmatch(_NUMBER, given)
            raise wrong(f"{given} has no unit" if has_no_unit else f"{given!r} cannot be read")
        total += _scaled(step) * _microseconds(step[3], wrong)
        given = given[step.end() :]
    return total / _SCALE / 1e6


def _microseconds(unit: str, wrong: _Wrong) -> int:
    if unit == "M":
        raise wrong("M may be months or minutes; m is minutes")
    found = _MICROSECONDS.get(unit) or _MICROSECONDS.get(unit.lower())
    if found is None:
        units = ", ".join(names[0] for _, names in _SPAN_UNITS)
        raise wrong(f"there is no unit {unit!r}; the units are {units}")
    return found


def _bytes(given: float | str, wrong: _Wrong) -> int:
    if isinstance(given, str):
        step = re.fullmatch(_STEP, given)
        if step is None:
            raise wrong("it is no number with one unit")
        size, rest = divmod(_scaled(step) * _unit_bytes(step[3], wrong), _SCALE)
    else:
        size, rest = int(given), given != int(given)
    if rest:
        raise wrong("it is no whole number of bytes")
    return size


def _unit_bytes(unit: str, wrong: _Wrong) -> int:
    if not unit.isascii() or unit.lower() not in _SIZE_UNITS:
        near = difflib.get_close_matches(unit, [name for _, name in _PRINTED_SIZES], n=1)
        raise wrong(f"there is no unit {unit!r}" + (f"; did you mean {near[0]}?" if near else ""))
    return _SIZE_UNITS[unit.lower()]


def _scaled(step: re.Match[str]) -> int:
    """Return the number of a step times `_SCALE`, as an exact integer."""
    return int(step[1] + (step[2] or "").ljust(_DIGITS_MAX, "0"))


# -- printing -------------------------------------------------------------------------------------------

_Unit = tuple[int, tuple[str, ...]]


def _units(left: int) -> Sequence[_Unit]:
    """Return the units in which a span is printed: days to seconds, or one below a second."""
    if left >= 1_000_000 or not left:
        return _PRINTED
    return _SPAN_UNITS[5:6] if left >= 1_000 else _SPAN_UNITS[6:]


def _rough_step(left: int) -> int:
    """Return the step of a rough span: the unit below its largest one, or a tenth of a second.

    Below a second it is the third digit.
    """
    if left < 1_000_000:
        return int(10 ** max(0, len(str(left)) - 3))
    lengths = [length for length, _ in _PRINTED] + [100_000]
    largest = next(place for place, length in enumerate(lengths) if left >= length)
    return lengths[largest + 1]


def _amount(microseconds: int, unit: _Unit, short: bool) -> str:
    length, names = unit
    whole, rest = divmod(microseconds, length)
    text = f"{whole}.{rest * 1_000_000 // length:06}".rstrip("0").rstrip(".")
    if short:
        return f"{text}{names[0]}"
    return f"{text} {names[1] if text == '1' else names[2]}"


def _rough_size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1_000
    return f"{size:,.0f} TB"
