"""Errors as a caller meets them, and the words that their texts must not have."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from quothwire.errors import QuothError

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_PATH = re.compile(r"(?<!\w)/[\w./-]+")
_BYTES = re.compile(r"(^|[\s(\[,=:])b['\"]")
_PYTHON = re.compile(
    r"<class|[a-z]Error\b|\bobjects?\b|\b(None|True|False)\b|codec|\bmsgpack\.|_len\b|__|\w\(\)"
    r"|\b(?!ZeroMQ)[A-Z][a-z]+[A-Z]\w+|\*\*|\bnan\b|: *(\(|$)"
)


def error_of(call: Callable[..., object], *arguments: object) -> QuothError:
    """Return the error that a call raises. Its text is short, whatever it quotes."""
    with pytest.raises(QuothError) as raised:
        call(*arguments)
    assert len(str(raised.value)) < 1_000
    return raised.value


def code_of(call: Callable[..., object], *arguments: object) -> str:
    return error_of(call, *arguments).code


def names_python(problem: QuothError) -> str:
    """Return the part of an error that names Python, or the error if its text has no reason; else "".

    People who write clients in any language read these texts. Ignores quotations of a request, and paths.
    """
    for words in (problem.text, problem.hint):
        found = _BYTES.search(words) or _PYTHON.search(_PATH.sub("/", _QUOTED.sub("''", words)))
        if found or not problem.text:
            return f"{found and found[0]!r} in {problem}"
    return ""
