"""Spans of time and sizes: valid and invalid input, and output that is valid input again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from kit.text.wording import code_of, error_of
from quothwire.text.quantity import format_size, format_span, is_span, parse_size, parse_span

SPANS: dict[Any, float] = {
    "7d": 604_800, "1h30m": 5_400, "1 h 30 min": 5_400, "1 day 12 hours": 129_600, "90s": 90, "2.5s": 2.5,
    "500ms": 0.5, "1us": 1e-6, "3µs": 3e-6, "2w": 1_209_600, "5S": 5, " 5s\n": 5, "90": 90, "6e1": 60, "0": 0,
    "1_000": 1_000, "1,024": 1_024, "1_000s": 1_000, "1,500 ms": 1.5, "1h1,000s": 4_600, 90: 90, 2.5: 2.5,
    "infinity": math.inf, "never": math.inf, "Infinity": math.inf, math.inf: math.inf,
}  # fmt: skip
NO_SPANS: dict[Any, str] = {
    "": "it is empty",
    "s": "it does not begin with a number",
    "nan": "it does not begin with a number",
    "-5s": "it is below 0",
    "-5": "it is below 0",
    -5: "it is below 0",
    "5x": "there is no unit 'x'; the units are w, d, h, m, s, ms, us",
    "1e3s": "there is no unit 'e'",
    "5M": "M may be months or minutes; m is minutes",
    "1h30": "30 has no unit",
    "1,50s": "'1,50s' cannot be read",
    "1h-3m": "'-3m' cannot be read",
    "\u0665s": "it does not begin with a number",
    "9" * 400 + "w": "it has 401 characters",
    "1s" * 50_000: "it has 100,000 characters",
    math.nan: "it is not a number",
    10**400: "it is too large",
    -(16**5_000): "it is too large",
    True: "it is neither a number nor text",
    None: "it is neither a number nor text",
    b"5s": "it is neither a number nor text",
}
SIZES: dict[Any, int] = {
    "64": 64, "64B": 64, "64 bytes": 64, "64K": 64_000, "64kB": 64_000, "64KB": 64_000, "64 kb": 64_000,
    "64KiB": 65_536, "64kib": 65_536, "64Ki": 65_536, "1GiB": 2**30, "1gib": 2**30, "2m": 2_000_000,
    "10MB": 10_000_000, "3T": 3 * 10**12, "1TiB": 2**40, "1.5G": 1_500_000_000, "0.5KiB": 512,
    "67_108_864": 2**26, "123,457 bytes": 123_457, "1,024": 1_024, "1_000 MB": 10**9, "1,024.5 kB": 1_024_500,
    "12,345,678": 12_345_678, 4_096: 4_096, 1e6: 1_000_000, "0": 0,
    f"{2**62}": 2**62,
}  # fmt: skip
NO_SIZES: dict[Any, str] = {
    "": "it is empty",
    "K": "it does not begin with a number",
    "\u0663": "it does not begin with a number",
    "-1": "it is below 0",
    -1: "it is below 0",
    "1.5": "it is no whole number of bytes",
    1.5: "it is no whole number of bytes",
    "1.00001k": "it is no whole number of bytes",
    "1KKB": "there is no unit 'KKB'; did you mean KiB?",
    "1iB": "there is no unit 'iB'",
    "64\u212a": "there is no unit",
    "1M 5k": "it is no number with one unit",
    "1,5000 B": "it is no number with one unit",
    "1,5000": "it is no number with one unit",
    "1234,567": "it is no number with one unit",
    "1,024,50 B": "it is no number with one unit",
    "0.5,000 kB": "it is no number with one unit",
    "1_000_": "it is no number with one unit",
    "9" * 5_000: "it has 5,000 characters",
    "infinity": "it has to be finite here",
    math.inf: "it has to be finite here",
    math.nan: "it is not a number",
    10**400: "it is too large",
    -(16**5_000): "it is too large",
    False: "it is neither a number nor text",
    None: "it is neither a number nor text",
}


def test_span_is_read_as_seconds_and_size_as_bytes() -> None:
    for given, seconds in SPANS.items():
        assert parse_span(given) == pytest.approx(seconds, rel=1e-12), given
    for given, size in SIZES.items():
        assert (parse_size(given), type(parse_size(given))) == (size, int), given


@pytest.mark.parametrize(
    ("parse", "cases", "kind", "hint"),
    [
        (parse_span, NO_SPANS, "span of time", "like 7d, 1h30m, 90s, 500ms or infinity"),
        (parse_size, NO_SIZES, "size", "like 1GiB, 64MiB, 10MB or 4096"),
    ],
    ids=["span", "size"],
)
def test_invalid_quantity_is_refused_with_the_reason(
    parse: Callable[..., object], cases: dict[Any, str], kind: str, hint: str
) -> None:
    for given, reason in cases.items():
        problem = error_of(parse, given)
        assert (problem.code, problem.hint) == ("bad_setting", hint)
        assert f"is not a {kind}: {reason}" in problem.text
        assert len(problem.text) < 200


def test_caller_chooses_the_value_of_infinity_or_refuses_it() -> None:
    assert parse_span("infinity", infinity=0) == 0
    assert parse_size("no limit", infinity=0) == 0
    assert code_of(lambda: parse_span("infinity", infinity=None)) == "bad_setting"


def test_only_a_finite_text_with_units_is_a_span() -> None:
    assert [text for text in ("15m", "1d3h", "1_000s") if not is_span(text)] == []
    assert [text for text in ("15", "1_000", "1,000", "now", "never", "") if is_span(text)] == []


@pytest.mark.parametrize(
    ("seconds", "words", "short", "rough"),
    [
        (604_800, "7 days", "7d", "7 days"),
        (5_400, "1 hour 30 minutes", "1h30m", "1 hour 30 minutes"),
        (90.5, "1 minute 30.5 seconds", "1m30.5s", "1 minute 30 seconds"),
        (100_000, "1 day 3 hours 46 minutes 40 seconds", "1d3h46m40s", "1 day 3 hours"),
        (1, "1 second", "1s", "1 second"),
        (59.96, "59.96 seconds", "59.96s", "59.9 seconds"),
        (0.05, "50 milliseconds", "50ms", "50 milliseconds"),
        (0.0015, "1.5 milliseconds", "1.5ms", "1.5 milliseconds"),
        (0.123456, "123.456 milliseconds", "123.456ms", "123 milliseconds"),
        (0.9994, "999.4 milliseconds", "999.4ms", "999 milliseconds"),
        (0.9995, "999.5 milliseconds", "999.5ms", "999 milliseconds"),
        (0.999999, "999.999 milliseconds", "999.999ms", "999 milliseconds"),
        (0.001999, "1.999 milliseconds", "1.999ms", "1.99 milliseconds"),
        (0.000999, "999 microseconds", "999us", "999 microseconds"),
        (0.000001, "1 microsecond", "1us", "1 microsecond"),
        (0, "0 seconds", "0s", "0 seconds"),
        (-90, "-1 minute 30 seconds", "-1m30s", "-1 minute 30 seconds"),
        (math.inf, "infinity", "infinity", "infinity"),
    ],
)
def test_span_is_printed_in_words(seconds: float, words: str, short: str, rough: str) -> None:
    assert format_span(seconds) == words
    assert format_span(seconds, short=True) == short
    assert format_span(seconds, rough=True) == rough


@pytest.mark.parametrize(
    ("size", "words", "rough"),
    [
        (0, "0 bytes", "0 B"),
        (1, "1 byte", "1 B"),
        (64_000, "64 kB", "64 kB"),
        (2**26, "64 MiB", "67.1 MB"),
        (17 * 2**20, "17 MiB", "17.8 MB"),
        (3 * 2**29, "1.5 GiB", "1.61 GB"),
        (10**10, "10 GB", "10 GB"),
        (2**56, "64 PiB", "72,058 TB"),
        (123_457, "123,457 bytes", "123 kB"),
    ],
)
def test_size_is_printed_in_words(size: int, words: str, rough: str) -> None:
    assert format_size(size) == words
    assert format_size(size, rough=True) == rough


def test_rough_span_is_at_most_the_span(rng: random.Random) -> None:
    for number in (*(int(10 ** rng.uniform(0, 12)) for _ in range(2_000)), 999_500, 999_999, 1_000_000):
        for short in (False, True):
            rough = round(parse_span(format_span(number / 1e6, short=short, rough=True)) * 1e6)
            assert 0.9 * number <= rough <= number


def test_output_is_valid_input_with_the_same_value(rng: random.Random) -> None:
    for _ in range(5_000):
        number = round(10 ** rng.uniform(0, 15)) // (step := 10 ** rng.randrange(7)) * step
        assert parse_size(format_size(number)) == number
        for short in (False, True):
            assert round(parse_span(format_span(number / 1e6, short=short)) * 1e6) == number
