"""Pointers: times that are exact to the microsecond, and the timestamps that people type."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from kit.text.wording import code_of, error_of
from quothwire.errors import QuothError
from quothwire.pointer import POINTER_MAX, check_pointer, from_datetime, parse, to_datetime, to_text

NOW = 1_767_323_045_000_001
"""2026-01-02T03:04:05.000001Z"""
MINUTE, HOUR, DAY = 60 * 10**6, 3_600 * 10**6, 86_400 * 10**6

TIMES = {
    0: datetime(1970, 1, 1, tzinfo=UTC),
    1: datetime(1970, 1, 1, microsecond=1, tzinfo=UTC),
    999_999: datetime(1970, 1, 1, microsecond=999_999, tzinfo=UTC),
    NOW: datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=UTC),
    POINTER_MAX: datetime(4253, 5, 31, 22, 20, 37, 927_935, tzinfo=UTC),
}


def problem_of(text: str) -> QuothError:
    problem = error_of(parse, text, NOW)
    assert problem.code == "bad_pointer"
    return problem


def test_value_that_is_no_pointer_is_refused() -> None:
    values: tuple[Any, ...] = (-1, 2**56, 2**64, True, False, 5.0, float("nan"), "5", b"5", None)
    for value in values:
        for take in (check_pointer, to_datetime, to_text):
            assert code_of(take, value) == "bad_pointer", value
    for now in (-1, 2**56, True):
        for text in ("now", "-1s"):
            assert code_of(parse, text, now) == "bad_pointer"


def test_pointer_is_its_time() -> None:
    for value, time in TIMES.items():
        assert check_pointer(value) == value
        assert to_datetime(value) == time
        assert to_datetime(value).utcoffset() == timedelta(0)
        assert from_datetime(time) == value
    assert POINTER_MAX == 2**56 - 1
    assert to_datetime(POINTER_MAX).date() == date(4253, 5, 31), "the documented one"


def test_time_text_and_pointer_are_exact_in_every_zone(rng: random.Random) -> None:
    values = sorted(rng.randrange(2 ** rng.randint(1, 56)) for _ in range(2_000))
    for value in values:
        zone = timezone(timedelta(minutes=rng.randint(-14 * 60, 14 * 60)))
        assert from_datetime(to_datetime(value)) == value
        assert from_datetime(to_datetime(value).astimezone(zone)) == value
        for text in (to_text(value), to_datetime(value).astimezone(zone).isoformat(), str(value)):
            assert parse(text, NOW) == value
    assert [to_text(value) for value in values] == sorted(to_text(value) for value in values)


class NoOffset(tzinfo):
    """A zone without an offset: a time with it is as naive as one without a zone."""

    def utcoffset(self, moment: datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, moment: datetime | None) -> str:
        return "none"


def test_time_without_a_zone_or_without_a_pointer_is_refused() -> None:
    for zone in (None, NoOffset()):
        problem = error_of(from_datetime, datetime(2026, 1, 2, tzinfo=zone))
        assert problem.code == "bad_pointer"
        assert "UTC" in problem.hint
    for time in (
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        to_datetime(POINTER_MAX) + timedelta(microseconds=1),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    ):
        assert code_of(from_datetime, time) == "bad_pointer"


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "0": 0,
        "2026": 2026,
        "00000000000000000000000000000000000007": 7,
        str(NOW): NOW,
        str(POINTER_MAX): POINTER_MAX,
        f"{NOW:090d}": NOW,
        "now": NOW,
        " now\n": NOW,
        "-0s": NOW,
        "-1us": NOW - 1,
        "-2.5s": NOW - 2_500_000,
        "-15m": NOW - 15 * MINUTE,
        "-1d3h": NOW - DAY - 3 * HOUR,
        "-1w2d3h4m5s6ms7us": NOW - 9 * DAY - 3 * HOUR - 4 * MINUTE - 5_006_007,
        "-999999999999999w": 0,
        "2026-01-02T03:04:05.000001Z": NOW,
        "2026-01-02T03:04:05.000001": NOW,
        "2026-01-02 03:04:05.000001": NOW,
        "2026-01-02T04:04:05.000001+01:00": NOW,
        "2026-01-01T17:34:05.000001-09:30": NOW,
        "2026-01-02T03:04": NOW - 5_000_001,
        "2026-01-02": NOW - 3 * HOUR - 4 * MINUTE - 5_000_001,
        "1970-01-01": 0,
        "1970-01-01T00:00:00.000001Z": 1,
        "1970-01-01T00:00:00+01:00": 0,
        "1969-12-31": 0,
        "0001-01-01T00:00:00+14:00": 0,
        "4253-05-31T22:20:37.927935Z": POINTER_MAX,
    }.items(),
)
def test_timestamp_is_read_as_a_person_types_it(text: str, expected: int) -> None:
    assert parse(text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "-", "+", "-1", "+5", "1.5", "1e9", "0x10", "1_000", "NaN", "inf", "null",
        "--15m", "-m", "-15m ago", "-1.m", "-.5s", "-1d-3h", "now-15m", "NOW",
        str(2**56), str(2**64), "9" * 20, "9" * 21, "9" * 10_000, "0" * 20 + "9" * 20,
        "-" + "9" * 20 + "s", "-" + "9" * 400 + "w",
        "02.01.2026",
        "4253-05-31T22:20:37.927936Z", "9999-12-31T23:59:59-14:00", "10000-01-01",
        "\u0661", "-\u0661\u0665m", "\u00b2", "\uff11", "\ud800", "2026-01-0\ud800", "5\0",
    ],
    ids=lambda text: ascii(text[:30]),
)  # fmt: skip
def test_text_that_is_no_timestamp_is_refused(text: str) -> None:
    problem_of(text)


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("2026-13-02", "there is no month 13", "a month is 01 to 12"),
        ("2026-02-30", "there is no day 30 in 2026-02", "a day of 2026-02 is 01 to 28"),
        ("2028-02-30", "there is no day 30 in 2028-02", "a day of 2028-02 is 01 to 29"),
        ("2026-01-02T25:00", "there is no hour 25", "an hour is 00 to 23"),
        ("2026-01-02T03:60:00Z", "there is no minute 60", "a minute is 00 to 59"),
        ("2026-01-02T03:04:61", "there is no second 61", "a second is 00 to 59"),
        ("2026-01-02T03:04:05+25:00", "there is no time zone +25:00", "like +01:00"),
        ("2026-01-02T03:04:05 CET", "' CET' is no time zone", "write Z for UTC"),
        ("2026-01-02T", "'T' is no time of day", "like 2026-01-02T03:04:05Z"),
        ("2026-1-2 3:04", "every number has two digits", "did you mean 2026-01-02 03:04?"),
        ("0000-01-02", "there is no year 0", "like"),
        ("9999-12-31", "lies behind the last pointer", "at most 4253-05-31T22:20:37.927935Z"),
        ("1h", "'1h' is a span of time, not a moment", "did you mean -1h?"),
        ("5 minutes", "'5 minutes' is a span of time, not a moment", "did you mean -5m?"),
        ("1 day 3 hours ago", "is a span of time, not a moment", "did you mean -1d3h?"),
        ("-15", "is no span before now: 15 has no unit", "like -15m"),
        ("-15x", "is no span before now: there is no unit 'x'", "like -15m"),
        ("-15M", "M may be months or minutes", "like -15m"),
        ("yesterday", "is neither a pointer nor a time", "like 1767323045000001"),
    ],
)
def test_error_of_a_timestamp_names_the_wrong_part(text: str, reason: str, hint: str) -> None:
    problem = problem_of(text)
    assert reason in problem.text
    assert hint in problem.hint


def test_long_text_is_refused_and_the_examples_in_the_hint_are_valid() -> None:
    for text in ("-" + "1s" * 50_000 + "x", "-" + "1" * 100_000, "-" + "1." * 50_000, "1" * 100_000 + "x"):
        problem_of(text)
    for example in ("1767323045000001", "2026-01-02T03:04:05Z", "-15m", "now"):
        assert example in problem_of("yesterday").hint
        parse(example, NOW)
