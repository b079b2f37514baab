"""The configuration as a TOML file: every key with its default and its reason."""

from __future__ import annotations

import json
import textwrap
from itertools import groupby
from pathlib import Path

from quothd.config.config import KEYS, Key, Size, Span
from quothwire.text.quantity import format_size, format_span

WIDTH = 100
_HEAD = """\
# Quoth's configuration. Every key stands here with its default; take away the # before one to change it.
# Arguments win over the environment (QUOTH_ and the key in capitals), that over this file.
# A span of time is text like "7d", "1h30m", "500ms" or a number of seconds, a size text like "1GiB", "10MB"
# or a number of bytes; "infinity" stands for no limit.
#
#   quothd --check --config FILE        is it right?
#   quoth config show --config FILE     what counts, and where does it come from?
#
# The service itself says --dir /var/lib/quoth, so `dir` does not count there.
# SIGHUP (systemctl reload quothd) reads it again. What is marked "at a restart" counts from then on only.
"""


def text() -> str:
    """The file, with every key commented out."""
    groups = groupby(KEYS.values(), key=lambda key: key.group)
    return "\n".join([_HEAD, *("\n".join(_group(title, list(keys))) for title, keys in groups)])


def toml(key: Key, value: object) -> str:
    """Write the value of a key as it stands in a file: spans and sizes as text with their units."""
    if key.kind in (Span, Size) and isinstance(value, int | float):
        text = key.words(value) if value == key.infinity else _with_unit(key, value)
        return _literal(text if text else value)
    return _literal(value)


def _with_unit(key: Key, value: float) -> str:
    """A span or a size in few letters; empty if no unit is exact."""
    if key.kind is Span:
        return format_span(value, short=True)
    text = format_size(value)
    return "" if text.endswith(("byte", "bytes")) else text.replace(" ", "")


def _literal(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return f"{value:_}" if value >= 10_000 else str(value)
        case float():
            return repr(value)
        case tuple():
            return f"[{', '.join(map(_literal, value))}]"
        case str() | Path():
            return json.dumps(str(value), ensure_ascii=False)
        case _:
            raise AssertionError(f"{value!r} is of no kind that a key has")


def _group(title: str, keys: list[Key]) -> list[str]:
    lines = [f"# -- {title} ".ljust(WIDTH, "-"), ""]
    for key in keys:
        lines += [*_prose(key), f"#{key.name} = {toml(key, key.default)}", ""]
    return lines


def _prose(key: Key) -> list[str]:
    """What it is, and below that why its default is what it is."""
    counts = "" if key.live else " (at a restart)"
    return [
        line
        for words in (key.help, key.why + counts)
        for line in textwrap.wrap(words, WIDTH, initial_indent="# ", subsequent_indent="# ")
    ]
