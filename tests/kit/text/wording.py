"""What the text of an error must not hold: it is read by people who write clients in any language."""

from __future__ import annotations

import re

from quothwire.errors import QuothError

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_BYTES = re.compile(r"(^|[\s(\[,=:])b['\"]")
_PYTHON = re.compile(
    r"<class|[a-z]Error\b|\bobjects?\b|\b(None|True|False)\b|codec|\bmsgpack\.|_len\b|__|\w\(\)"
    r"|\b(?!ZeroMQ)[A-Z][a-z]+[A-Z]\w+|\*\*|\bnan\b|: *(\(|$)"
)


def names_python(problem: QuothError) -> str:
    """What an error says of the language it was written in, or that it gives no reason; empty if neither.

    What it quotes of a request is passed over.
    """
    for words in (problem.text, problem.hint):
        found = _BYTES.search(words) or _PYTHON.search(_QUOTED.sub("''", words))
        if found or not problem.text:
            return f"{found and found[0]!r} in {problem}"
    return ""
