"""The parameters of requests: a table for each operation, by which values are parsed and documented."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from quothwire import pointer as pointers
from quothwire.errors import QuothError, error, shown
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.group_settings import GROUP_BYTES_MAX, check_group
from quothwire.text.quantity import format_span, parse_span
from quothwire.text.suggestion import nearest
from quothwire.topic import check_topic

Schema = Mapping[str, Any]


class Parameter(NamedTuple):
    """One parameter. parse: converts its text, or raises `QuothError`. schema: its type in OpenAPI.

    default: its value if it is not given. required: it has to be given.
    """

    name: str
    about: str
    parse: Callable[[str], Any]
    schema: Schema
    default: Any = None
    where: Literal["path", "query", "header"] = "query"
    required: bool = False
    example: Any = None


def parse_path(parameters: Iterable[Parameter], found: Mapping[str, str]) -> dict[str, Any]:
    """Parse the names in a path."""
    return {one.name: one.parse(found[one.name]) for one in parameters if one.where == "path"}


def parse_query(parameters: Sequence[Parameter], given: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Parse a query. Raises ``bad_request`` for an unknown parameter, one given twice, or a wrong value."""
    known = {one.name: one for one in parameters if one.where == "query"}
    values = {name: one.default for name, one in known.items()}
    for name, count in Counter(name for name, _ in given).items():
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"one of {', '.join(known) or 'none'}"
            raise error("bad_request", f"there is no parameter {shown(name)}", hint)
        if count > 1:
            raise error("bad_request", f"the parameter {name} is there {count} times", "say one of them")
    for name, text in given:
        values[name] = _parsed(known[name], text)
    for one in known.values():
        if one.required and values[one.name] is None:
            raise error("bad_request", f"the parameter {one.name} is missing", one.about)
    return values


def _parsed(parameter: Parameter, text: str) -> Any:
    try:
        return parameter.parse(text)
    except QuothError as problem:
        text = (
            problem.text if problem.text.startswith(parameter.name) else f"{parameter.name}: {problem.text}"
        )
        raise error(problem.code, text, problem.hint) from None


# -- kinds --------------------------------------------------------------------------------------------------


def whole(low: int, high: int) -> tuple[Callable[[str], int], Schema]:
    """Return the parser and the schema of a whole number."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 20 and low <= int(text) <= high):
            raise error("bad_request", f"it is {low} to {high:,}, not {shown(text)}", "in digits")
        return int(text)

    return parse, {"type": "integer", "minimum": low, "maximum": high}


def span(low: float, high: float) -> tuple[Callable[[str], float], Schema]:
    """Return the parser and the schema of a span of time, as seconds."""

    def parse(text: str) -> float:
        try:
            seconds = parse_span(text, infinity=None)
        except QuothError as problem:
            raise error("bad_request", problem.text, problem.hint) from None
        if not low <= seconds <= high:
            bounds = f"{format_span(low)} to {format_span(high)}"
            raise error("bad_request", f"it is {bounds}, not {shown(text)}", "like 30s")
        return seconds

    return parse, {"type": "string", "examples": ["500ms", "0.1"]}


def choice(*choices: str) -> tuple[Callable[[str], str], Schema]:
    """Return the parser and the schema of one of some words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise error("bad_request", f"it is {' or '.join(choices)}, not {shown(text)}")
        return text

    return parse, {"type": "string", "enum": list(choices)}


def timestamp(text: str) -> int:
    """Parse a pointer or a time."""
    return pointers.parse(text, now())


def pointer_of(text: str) -> int:
    """Parse a pointer in decimal digits."""
    if not (text.isascii() and text.isdigit()):
        raise error("bad_pointer", f"a pointer is digits, not {shown(text)}")
    return pointers.parse(text, 0)


def now() -> int:
    """Return the time of this machine's clock as a pointer."""
    return time.time_ns() // 1_000


def hexadecimal(text: str) -> int:
    """Parse the id of a log: 16 hexadecimal digits."""
    try:
        if len(text) != 16 or not text.isalnum():
            raise ValueError
        return int(text, 16)
    except ValueError:
        raise error("bad_request", f"a log's id is 16 hexadecimal digits, not {shown(text)}") from None


def text_up_to(bytes_max: int) -> tuple[Callable[[str], str], Schema]:
    """Return the parser and the schema of a text."""

    def parse(text: str) -> str:
        if len(text.encode("utf-8", "replace")) > bytes_max or "\0" in text:
            raise error("bad_request", f"it has at most {bytes_max} bytes, and no NUL")
        return text

    return parse, {"type": "string", "maxLength": bytes_max}


TIMESTAMP: Schema = {
    "type": "string",
    "examples": ["1767323045000001", "2026-01-02T03:04:05Z", "-15m", "now"],
}
POINTER: Schema = {"type": "integer", "minimum": 0, "maximum": POINTER_MAX}
LOG: Schema = {"type": "string", "pattern": "^[0-9a-fA-F]{16}$"}


def checked_topic(name: str) -> str:
    """Return the name of a topic. Raises ``bad_topic``."""
    return check_topic(name)


TOPIC = Parameter(
    "topic", "The name of the topic, URL-encoded.", checked_topic,
    {"type": "string", "minLength": 1, "maxLength": 200}, where="path", required=True, example="orders",
)  # fmt: skip
GROUP = Parameter(
    "group", "The name of the group, URL-encoded.", check_group,
    {"type": "string", "minLength": 1, "maxLength": GROUP_BYTES_MAX}, where="path", required=True,
    example="billing",
)  # fmt: skip
