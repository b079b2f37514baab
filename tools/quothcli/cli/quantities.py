"""Options that take a span of time or a size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from quoth.core.options import SECONDS_MAX
from quothcli.cli.command import option as make_option
from quothwire.errors import QuothError, error
from quothwire.text.quantity import format_size, format_span, parse_size, parse_span

Number = TypeVar("Number", int, float)

_SPANS = ("7d", "1h30m", "90s", "5s", "500ms")
_SIZES = ("1GiB", "64MiB", "10MB", "4096")


def span_option(option: str, help_text: str, least: float = 0.0, most: float = SECONDS_MAX) -> Any:
    """Make an option that takes a span. help_text: with the default, if there is one."""
    return make_option(f"{option} SPAN", help_text, parser=span(option, least, most), show_default=False)


def size_option(option: str, help_text: str) -> Any:
    """Make an option that takes a size. help_text: with the default, if there is one."""
    return make_option(f"{option} SIZE", help_text, parser=size(option), show_default=False)


def span(option: str, least: float = 0.0, most: float = SECONDS_MAX) -> Callable[[object], float]:
    """Make the parser of an option that takes a span: seconds from `least` to `most`.

    ``infinity`` is `most`, and refused if that is less than can be waited for. The parser raises
    `RequestError` ``bad_setting``, which names the option and has examples within the bounds as its hint.
    """
    infinity = most if most >= SECONDS_MAX else None
    examples = [one for one in _SPANS if least <= parse_span(one) <= most]
    hint = _like([*examples, *(["infinity"] if infinity is not None else [])])
    bounds = f"at least {format_span(least)} and at most {format_span(most)}"
    return _parser(option, partial(parse_span, infinity=infinity), least, most, bounds, hint)


def size(option: str, least: int = 1) -> Callable[[object], int]:
    """Make the parser of an option that takes a size: bytes from `least` on. It raises as that of `span`."""
    hint = _like([one for one in _SIZES if parse_size(one) >= least])
    return _parser(option, parse_size, least, math.inf, f"at least {format_size(least)}", hint)


def _parser(
    option: str, parse: Callable[[object], Number], least: float, most: float, bounds: str, hint: str
) -> Callable[[object], Number]:
    def parsed(typed: object) -> Number:
        try:
            found = parse(typed)
        except QuothError as problem:
            raise error(problem.code, f"{option}: {problem.text}", hint) from None
        if not least <= found <= most:
            raise error("bad_setting", f"{option} is {bounds}, not {typed!r}", hint)
        return found

    return parsed


def _like(examples: Sequence[str]) -> str:
    *others, last = examples
    return f"like {', '.join(others)} or {last}" if others else f"like {last}"
