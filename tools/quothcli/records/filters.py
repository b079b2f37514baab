"""Filters records by key, by a pattern of their value, by headers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from typer import BadParameter, Context

from quothcli.cli.command import SharedOptions, option

if TYPE_CHECKING:
    from quoth import Message

Filter = Callable[["Message"], bool]
"""True for the records that are printed."""

_Key = Annotated[str | None, option("--key KEY", "Only records with exactly this key.")]
_Grep = Annotated[
    str | None,
    option(
        "--grep RE",
        "Only records whose value, read as UTF-8, this regular expression of Python matches somewhere: "
        "(?i)error.*disk. A byte that is not UTF-8 matches as \\udc80 to \\udcff: \\udce9 is the byte E9.",
    ),
]
_Headers = Annotated[
    list[str] | None,
    option(
        "--header NAME[=VALUE]",
        "Only records that have this header, with this value if one is given; may be repeated.",
    ),
]


def _filter_of(
    _context: Context, key: str | None, grep: str | None, headers: Sequence[str] | None
) -> Filter | None:
    """Make a filter from the options; None if all records pass. Raises `BadParameter`."""
    tests: list[Filter] = []
    if key is not None:
        tests.append(_has_key(os.fsencode(key)))
    for header in headers or ():
        tests.append(_has_header(*header.partition("=")))
    if grep is not None:
        tests.append(_matches(grep))
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda message: all(test(message) for test in tests)


Filtered = Annotated[
    Filter | None, SharedOptions({"key": _Key, "grep": _Grep, "headers": _Headers}, _filter_of)
]
"""The parameter of a command for the filter of its records."""


def _has_key(key: bytes) -> Filter:
    return lambda message: message.key == key


def _has_header(name: str, equals: str, value: str) -> Filter:
    if not name:
        raise BadParameter("a header has a name: NAME=VALUE, or NAME alone", param_hint="--header")
    if not equals:
        return lambda message: name in message.headers
    content = os.fsencode(value)
    return lambda message: message.headers.get(name) == content


def _matches(expression: str) -> Filter:
    try:
        search = re.compile(expression).search
    except re.error as problem:
        raise BadParameter(
            f"{expression!r} is no regular expression: {problem}", param_hint="--grep"
        ) from None
    return lambda message: search(message.value.decode("utf-8", "surrogateescape")) is not None
