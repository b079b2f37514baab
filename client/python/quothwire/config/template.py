"""A configuration as a TOML file: every key with its default and its reason."""

from __future__ import annotations

import json
import textwrap
from itertools import groupby
from pathlib import Path
from typing import Any

from quothwire.config.config_key import ConfigKey, Mode, Schema, Size, Span
from quothwire.config.sources import Sourced
from quothwire.text.quantity import format_size, format_span

WIDTH = 100


def text(schema: Schema[Any], head: str) -> str:
    """Return the file, with every key commented out. head: the comment that it begins with."""
    lines = [head]
    for (title, table), keys in groupby(schema.keys.values(), key=lambda key: (key.group, key.table)):
        lines += [f"# -- {title} ".ljust(WIDTH, "-"), ""]
        if table:
            lines += [f"[{table}]", ""]
        for key in keys:
            lines += [*_prose(key), f"#{key.name_in_table} = {toml(key, key.default)}", ""]
    return "\n".join(lines)


def differences(found: Sourced[Any]) -> str:
    """Return the answer of a check: the keys that differ from the defaults, with the origin of each."""
    names = found.changes()
    lines = [f"{name} = {toml(found.schema.keys[name], getattr(found.config, name))}" for name in names]
    width = max(map(len, lines), default=0)
    rows = [f"{line:<{width}}  {found.origin(name)}" for name, line in zip(names, lines, strict=True)]
    return "\n".join(["ok", *rows, "everything " + ("else " if names else "") + "is as by default"])


def toml(key: ConfigKey, value: object) -> str:
    """Format the value of a key for the file: spans and sizes as text with their units."""
    if key.kind in (Span, Size) and isinstance(value, int | float):
        text = key.words(value) if value == key.infinity else _with_unit(key, value)
        return _literal(text or value)
    return _literal(key.words(value) if key.kind is Mode else value)


def _with_unit(key: ConfigKey, value: float) -> str:
    """Format a span or a size in few letters; returns "" if no unit is exact."""
    if key.kind is Span:
        return format_span(value, short=True)
    text = format_size(value)
    return "" if text.endswith(("byte", "bytes")) else text.replace(" ", "")


def _literal(value: object) -> str:
    if isinstance(value, int) and value >= 10_000:
        return f"{value:_}"
    if isinstance(value, tuple | Path):
        value = list(value) if isinstance(value, tuple) else str(value)
    return json.dumps(value, ensure_ascii=False)


def _prose(key: ConfigKey) -> list[str]:
    """Wrap the text of a key, and below it the reason for its default."""
    restart = "" if key.live else " (at a restart)"
    return [
        line
        for words in (key.help, key.why + restart)
        for line in textwrap.wrap(words, WIDTH, initial_indent="# ", subsequent_indent="# ")
    ]
