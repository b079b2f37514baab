"""Spans of time and sizes as people write them: one parser and one printer for all parts of Quoth.

A span is in seconds, a size in bytes. A bare number has that unit; text may name others: ``7d``, ``1h30m``,
``500ms``, ``1GiB``, ``10MB``. ``infinity`` means no limit, ``1_000`` and ``1,000`` are a thousand. The output
of `format_span` and `format_size` is valid input with the same value, unless it is rough.
"""

from __future__ import annotations

import difflib
import math
import re

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
_SECOND, _MILLISECOND, _MICROSECOND = _SPAN_UNITS[4:]

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
    hint = (
        SPAN_EXAMPLES if infinity is not None else SPAN_EXAMPLES.replace(", 500ms or infinity", " or 500ms")
    )
    number = _number(given, "span of time", hint)
    if number is None:
        return _steps(str(given).strip(), hint) / 1e6
    if math.isinf(number):
        return _infinite(infinity, given, "span of time", hint)
    return float(number)


def parse_size(given: object, *, infinity: int | None = None) -> int:
    """Read a size as bytes: ``1GiB`` (1,024 each), ``10MB`` (1,000 each), ``4096`` or a number.

    infinity: the result for ``infinity``; None: refuse it. Raises as `parse_span` does, also for a size that
    is no whole number of bytes.
    """
    hint = SIZE_EXAMPLES if infinity is not None else SIZE_EXAMPLES.replace(", 4096 or infinity", " or 4096")
    number = _number(given, "size", hint)
    if number is None:
        number = _bytes(str(given).strip(), hint)
    if math.isinf(number):
        return int(_infinite(infinity, given, "size", hint))
    if number != int(number):
        raise _wrong(given, "size", "it is no whole number of bytes", hint)
    return int(number)


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
    if rough:
        left -= left % _rough_step(left)
    parts = [_amount(left, _small_unit(left), short)] if left < 1_000_000 else _parts(left, short)
    return ("-" if seconds < 0 and left else "") + ("" if short else " ").join(parts)


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


def _number(given: object, noun: str, hint: str) -> float | None:
    """Return a given number, or infinity for a word that means it; None for text with units."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise _wrong(given, noun, "it is neither a number nor text", hint)
    if isinstance(given, str):
        if len(given) > _TEXT_LENGTH_MAX:
            raise _wrong(f"{given[:40]}...", noun, f"it has {len(given):,} characters", hint)
        text = _without_separators(given.strip())
        if text.lower() in _INFINITY:
            return math.inf
        if not re.fullmatch(_NUMBER, text):
            return None
        return int(text) if text.isdigit() else float(text)
    if isinstance(given, int) and abs(given) > _WHOLE_MAX:
        raise _wrong(given, noun, "it is too large", hint)
    if math.isnan(given):
        raise _wrong(given, noun, "it is not a number", hint)
    if given < 0:
        raise _wrong(given, noun, "it is below 0", hint)
    return given


def _without_separators(text: str) -> str:
    """Remove the separators of ``1_000`` and ``1,000``. A comma elsewhere stays, and is refused later."""
    return re.sub(_SEPARATORS, lambda found: found[0].replace("_", "").replace(",", ""), text)


def _infinite(infinity: float | None, given: object, noun: str, hint: str) -> float:
    if infinity is None:
        raise _wrong(given, noun, "it has to be finite here", hint)
    return infinity


def _steps(text: str, hint: str) -> float:
    """Return the microseconds of a span with units."""
    _check_begin(text, "span of time", hint)
    total, end = 0, 0
    plain = _without_separators(text)
    while end < len(plain):
        step = re.match(_STEP, plain[end:])
        if step is None:
            left = plain[end:]
            reason = f"{left} has no unit" if re.fullmatch(_NUMBER, left) else f"{left!r} cannot be read"
            raise _wrong(text, "span of time", reason, hint)
        total += _scaled(step) * _microseconds(text, step[3], hint)
        end += step.end()
    return total / _SCALE


def _scaled(step: re.Match[str]) -> int:
    """Return the number of a step times `_SCALE`, as an exact integer."""
    return int(step[1] + (step[2] or "").ljust(_DIGITS_MAX, "0"))


def _microseconds(text: str, unit: str, hint: str) -> int:
    if unit == "M":
        raise _wrong(text, "span of time", "M may be months or minutes; m is minutes", hint)
    found = _MICROSECONDS.get(unit) or _MICROSECONDS.get(unit.lower())
    if found is None:
        units = ", ".join(names[0] for _, names in _SPAN_UNITS)
        raise _wrong(text, "span of time", f"there is no unit {unit!r}; the units are {units}", hint)
    return found


def _bytes(text: str, hint: str) -> int:
    _check_begin(text, "size", hint)
    step = re.fullmatch(_STEP, _without_separators(text))
    if step is None:
        raise _wrong(text, "size", "it is no number with one unit", hint)
    unit = step[3]
    if not unit.isascii() or unit.lower() not in _SIZE_UNITS:
        near = difflib.get_close_matches(unit, [name for _, name in _PRINTED_SIZES], n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise _wrong(text, "size", f"there is no unit {unit!r}{meant}", hint)
    found = _scaled(step) * _SIZE_UNITS[unit.lower()]
    if found % _SCALE:
        raise _wrong(text, "size", "it is no whole number of bytes", hint)
    return found // _SCALE


def _check_begin(text: str, noun: str, hint: str) -> None:
    if not text:
        raise _wrong(text, noun, "it is empty", hint)
    if text.startswith("-"):
        raise _wrong(text, noun, "it is below 0", hint)
    if not (text[0].isascii() and text[0].isdigit()):
        raise _wrong(text, noun, "it does not begin with a number", hint)


def _wrong(given: object, noun: str, reason: str, hint: str) -> QuothError:
    return error("bad_setting", f"{quoted(given)} is not a {noun}: {reason}", hint)


# -- printing -------------------------------------------------------------------------------------------

_Unit = tuple[int, tuple[str, ...]]


def _small_unit(microseconds: int) -> _Unit:
    """Return the unit of a span below a second."""
    if not microseconds:
        return _SECOND
    return _MILLISECOND if microseconds >= 1_000 else _MICROSECOND


def _parts(left: int, short: bool) -> list[str]:
    """Format a span of a second and more, a text for each unit that is not zero."""
    parts = []
    for unit in _PRINTED:
        length = unit[0]
        count = left if length == 1_000_000 else left - left % length
        if count:
            parts.append(_amount(count, unit, short))
        left -= count
    return parts


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
