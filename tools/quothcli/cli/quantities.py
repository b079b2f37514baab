"""Options that take a span of time or a size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from typer import Option

from quoth.core.options import SECONDS_MAX
from quothwire.errors import QuothError, error
from quothwire.text.quantity import format_size, format_span, parse_size, parse_span

T = TypeVar("T")

_SPANS = ("7d", "1h30m", "90s", "5s", "500ms")
_SIZES = ("1GiB", "64MiB", "10MB", "4096")


def span_option(option: str, help_text: str, least: float = 0.0, most: float = SECONDS_MAX) -> Any:
    """Make an option that takes a span. help_text: with the default, if there is one."""
    return Option(
        option, metavar="SPAN", parser=span(option, least, most), help=help_text, show_default=False
    )


def size_option(option: str, help_text: str) -> Any:
    """Make an option that takes a size. help_text: with the default, if there is one."""
    return Option(option, metavar="SIZE", parser=size(option), help=help_text, show_default=False)


def span(option: str, least: float = 0.0, most: float = SECONDS_MAX) -> Callable[[object], float]:
    """Make the parser of an option that takes a span: seconds from `least` to `most`.

    ``infinity`` is `most`, and refused if that is less than can be waited for. The parser raises
    `RequestError` ``bad_setting``, which names the option and has examples within the bounds as its hint.
    """
    infinity = most if most >= SECONDS_MAX else None
    examples = [one for one in _SPANS if least <= parse_span(one) <= most]
    hint = _like([*examples, *(["infinity"] if infinity is not None else [])])

    def parse(typed: object) -> float:
        seconds = _named(option, hint, lambda: parse_span(typed, infinity=infinity))
        if not least <= seconds <= most:
            text = f"{option} is at least {format_span(least)} and at most {format_span(most)}, not {typed!r}"
            raise error("bad_setting", text, hint)
        return seconds

    return parse


def size(option: str, least: int = 1) -> Callable[[object], int]:
    """Make the parser of an option that takes a size: bytes from `least` on.

    The parser raises `RequestError` ``bad_setting``, which names the option and has examples as its hint.
    """
    hint = _like([one for one in _SIZES if parse_size(one) >= least])

    def parse(typed: object) -> int:
        found = _named(option, hint, lambda: parse_size(typed))
        if found < least:
            text = f"{option} is at least {format_size(least)}, not {typed!r}"
            raise error("bad_setting", text, hint)
        return found

    return parse


def _like(examples: Sequence[str]) -> str:
    *others, last = examples
    return f"like {', '.join(others)} or {last}" if others else f"like {last}"


def _named(option: str, hint: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except QuothError as problem:
        raise error(problem.code, f"{option}: {problem.text}", hint) from None
