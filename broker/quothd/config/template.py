"""The configuration as a TOML file: every key with its default and its reason."""

from __future__ import annotations

import json
import textwrap
from itertools import groupby
from pathlib import Path

from quothd.config.config import KEYS
from quothd.config.config_key import TABLES, ConfigKey, Mode, Size, Span
from quothwire.text.quantity import format_size, format_span

WIDTH = 100
_HEAD = """\
# Quoth's configuration: every key with its default. To change one, remove the # before it.
# Arguments win over the environment (QUOTH_ and the key in capitals), which wins over this file.
# A span of time is text like "7d", "1h30m", "500ms" or a number of seconds. A size is text like "1GiB",
# "10MB" or a number of bytes. "infinity" stands for no limit.
#
#   quothd --check --config FILE        checks a file
#   quoth config show --config FILE     prints every value and its origin
#
# The service passes --dir /var/lib/quoth, which wins over the key `dir`.
# SIGHUP (systemctl reload quothd) reads the file again. A key with "(at a restart)" needs a restart.
"""


def text() -> str:
    """Return the file, with every key commented out."""
    lines = [_HEAD]
    for title, keys in groupby(KEYS.values(), key=lambda key: key.group):
        lines += [f"# -- {title} ".ljust(WIDTH, "-"), "", *_heading(title)]
        for key in keys:
            lines += [*_prose(key), f"#{key.name} = {toml(key, key.default)}", ""]
    return "\n".join(lines)


def _heading(group: str) -> list[str]:
    """Return the line that begins the table of a group, none if it has none."""
    return [line for table, title in TABLES.items() if title == group for line in (f"[{table}]", "")]


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
