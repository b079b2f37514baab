"""The configuration as a TOML file: every key with its default, its unit and its reason."""

from __future__ import annotations

import json
import textwrap
from itertools import groupby
from pathlib import Path

from quothd.config import KEYS, Key

WIDTH = 100
_MIB = 2**20
_HEAD = """\
# Quoth's configuration. Every key stands here with its default; take away the # before one to change it.
# Arguments win over the environment (QUOTH_ and the key in capitals), that over this file.
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


def toml(value: object) -> str:
    """A value of a key as it stands in a file."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return f"{value:_}" if value >= 10_000 else str(value)
        case float():
            return repr(value)
        case tuple():
            return f"[{', '.join(map(toml, value))}]"
        case str() | Path():
            return json.dumps(str(value), ensure_ascii=False)
        case _:
            raise AssertionError(f"{value!r} is of no kind that a key has")


def _group(title: str, keys: list[Key]) -> list[str]:
    lines = [f"# -- {title} ".ljust(WIDTH, "-"), ""]
    for key in keys:
        lines += [*_prose(key), f"#{key.name} = {toml(key.default)}{_size(key)}", ""]
    return lines


def _prose(key: Key) -> list[str]:
    """What it is, and below that why its default is what it is."""
    counts = "" if key.live else " (at a restart)"
    return [
        line
        for words in (key.help, key.why + counts)
        for line in textwrap.wrap(words, WIDTH, initial_indent="# ", subsequent_indent="# ")
    ]


def _size(key: Key) -> str:
    """A number of bytes as people read it."""
    is_size = isinstance(key.default, int) and key.default >= _MIB
    return f"  # {key.default // _MIB} MiB" if is_size else ""
