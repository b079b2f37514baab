"""The error of a text that is no timestamp: it names the month, the day, the zone or the missing minus."""

from __future__ import annotations

import calendar
import re

from quothwire.errors import QuothError, error
from quothwire.text.quantity import format_span, is_span, parse_span

EXAMPLES = "like 1767323045000001, 2026-01-02T03:04:05Z, -15m or now"
_SHOWN_MAX = 40
_DATE = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"(?:[Tt ](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:[.,][0-9]{1,9})?)?)?"
    r"(?P<rest>.*)",
    re.DOTALL,
)
_ZONE = re.compile(r" *(?P<sign>[+-])(?P<hours>[0-9]{1,2})(?::?(?P<minutes>[0-9]{2}))?")
_RANGES = {"month": (1, 12), "hour": (0, 23), "minute": (0, 59), "second": (0, 59)}


def timestamp_error(text: str) -> QuothError:
    """Make the error of a text that is no timestamp: `RequestError` ``bad_pointer``."""
    shown = repr(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}...")
    span = text.removesuffix(" ago").removeprefix("+")
    if is_span(span):
        meant = format_span(parse_span(span), short=True) if re.search(r"\s", span) else span
        return error("bad_pointer", f"{shown} is a span of time, not a moment", f"did you mean -{meant}?")
    if re.match("-[0-9]", text):
        return _wrong_span(shown, text)
    if (date := _DATE.fullmatch(text)) is not None:
        reason, hint = _reason(date)
        return error("bad_pointer", f"{shown} is no time: {reason}", hint)
    return error("bad_pointer", f"{shown} is neither a pointer nor a time", EXAMPLES)


def _wrong_span(shown: str, text: str) -> QuothError:
    try:
        parse_span(text[1:])
    except QuothError as problem:
        reason = problem.text.partition(": ")[2]
    else:
        reason = f"{text[1:]} has no unit"
    return error("bad_pointer", f"{shown} is no span before now: {reason}", "like -15m, -1d3h or -90s")


def _reason(date: re.Match[str]) -> tuple[str, str]:
    """Return the reason for which a date and time is invalid, and a hint."""
    said = {name: int(value) for name, value in date.groupdict().items() if name != "rest" and value}
    if said["year"] == 0:
        return "there is no year 0", EXAMPLES
    for name, (low, high) in _RANGES.items():
        if not low <= said.get(name, low) <= high:
            return f"there is no {name} {date[name]}", f"a {name} is {low:02} to {high}".replace(
                "a hour", "an hour"
            )
    days = calendar.monthrange(said["year"], said["month"])[1]
    if not 1 <= said["day"] <= days:
        month = f"{said['year']:04}-{said['month']:02}"
        return f"there is no day {date['day']} in {month}", f"a day of {month} is 01 to {days}"
    return _reason_behind(date)


def _reason_behind(date: re.Match[str]) -> tuple[str, str]:
    """Return the reason and a hint where all numbers are valid: a wrong zone, or single digits."""
    rest = date["rest"]
    zone = _ZONE.fullmatch(rest)
    if zone is not None and (int(zone["hours"]) > 23 or int(zone["minutes"] or 0) > 59):
        return f"there is no time zone {rest.strip()}", "a zone is Z, or -23:59 to +23:59, like +01:00"
    if rest and rest not in ("Z", "z") and zone is None:
        if date["hour"] is None:
            return f"{rest!r} is no time of day", "like 2026-01-02T03:04:05Z"
        return f"{rest!r} is no time zone", "write Z for UTC, or the distance from it like +01:00"
    padded = re.sub(r"(?<![0-9.,])[0-9](?![0-9])", lambda digit: f"0{digit[0]}", date[0])
    return "every number has two digits", f"did you mean {padded}?"
