"""Which records are wanted: by key, by what their value holds, by headers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from quoth import Message

Wanted = Callable[["Message"], bool]

Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only records with exactly this key.")]
Grep = Annotated[
    str | None,
    typer.Option(
        "--grep",
        metavar="RE",
        help="Only records whose value, read as UTF-8, this regular expression of Python matches somewhere: "
        "(?i)error.*disk. A byte that is not UTF-8 matches as \\udc80 to \\udcff: \\udce9 is the byte E9.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME[=VALUE]",
        help="Only records that have this header, with this value if one is given; may be repeated.",
    ),
]


def wanted(key: str | None, grep: str | None, headers: Sequence[str] | None) -> Wanted | None:
    """Tells the records that are wanted; None if all are. Raises `BadParameter`."""
    tests: list[Wanted] = []
    if key is not None:
        tests.append(_has_key(os.fsencode(key)))
    for header in headers or ():
        tests.append(_has_header(*header.partition("=")))
    if grep is not None:
        tests.append(_matches(grep))
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda message: all(test(message) for test in tests)


def _has_key(key: bytes) -> Wanted:
    return lambda message: message.key == key


def _has_header(name: str, equals: str, value: str) -> Wanted:
    if not name:
        raise typer.BadParameter("a header has a name: NAME=VALUE, or NAME alone", param_hint="--header")
    if not equals:
        return lambda message: name in message.headers
    content = os.fsencode(value)
    return lambda message: message.headers.get(name) == content


def _matches(expression: str) -> Wanted:
    try:
        search = re.compile(expression).search
    except re.error as problem:
        raise typer.BadParameter(
            f"{expression!r} is no regular expression: {problem}", param_hint="--grep"
        ) from None
    return lambda message: search(message.value.decode("utf-8", "surrogateescape")) is not None
