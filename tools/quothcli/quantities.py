"""Options that take a span of time or a size: `typer.Option("--timeout", parser=span("--timeout"))`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from quoth.deadline import SECONDS_MAX
from quothwire.errors import QuothError, error
from quothwire.quantity import SIZE_EXAMPLES, SPAN_EXAMPLES, format_size, format_span, parse_size, parse_span

T = TypeVar("T")


def span(option: str, least: float = 0.0, most: float = SECONDS_MAX) -> Callable[[object], float]:
    """Make the parser of an option that takes a span: seconds from `least` to `most`.

    ``infinity`` is `most`. What it makes raises `RequestError` ``bad_setting``, naming the option.
    """

    def parse(typed: object) -> float:
        with_infinity = most if most >= SECONDS_MAX else None
        seconds = _named(option, lambda: parse_span(typed, infinity=with_infinity))
        if not least <= seconds <= most:
            text = f"{option} is at least {format_span(least)} and at most {format_span(most)}, not {typed!r}"
            raise error("bad_setting", text, SPAN_EXAMPLES)
        return seconds

    return parse


def size(option: str, least: int = 1) -> Callable[[object], int]:
    """Make the parser of an option that takes a size: bytes from `least` on.

    What it makes raises `RequestError` ``bad_setting``, naming the option.
    """

    def parse(typed: object) -> int:
        found = _named(option, lambda: parse_size(typed))
        if found < least:
            raise error(
                "bad_setting", f"{option} is at least {format_size(least)}, not {typed!r}", SIZE_EXAMPLES
            )
        return found

    return parse


def _named(option: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except QuothError as problem:
        raise error(problem.code, f"{option}: {problem.text}", problem.hint) from None
