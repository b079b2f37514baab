"""Prints records in columns, for a person at a terminal: time, key, value, then headers.

    --- 2026-01-02 UTC ---
    03:04:05.000  customer-1  {"total": 12}  trace=7f

The key's column is as wide as the widest key so far, up to a limit; there is none before the first key. A
value is never cut: the terminal breaks the line. A line with the date comes before the first record of a day.
Headers that cannot be decoded follow as (PROBLEM: BYTES).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from quothcli.printing.output import Printer, headers_texts
from quothcli.printing.text import cells_of, printable, shown
from quothwire.pointer import time_text

if TYPE_CHECKING:
    from quoth import Message

_TOPIC, _TIME, _KEY, _HEADER = "35", "2", "36", "2"
"""The colours: magenta, dim, cyan, dim."""
_PART_MAX = 4
"""Part of the terminal up to which keys and topics' names are padded."""


def has_colour() -> bool:
    """True if the terminal is to show colours: not with NO_COLOR, nor if it is a dumb one."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class PrintedColumns:
    """Formats records as lines. pointers: show them, too. with_topic: begin with the topic's name.

    columns: of the terminal; None for its size.
    """

    def __init__(self, *, pointers: bool, with_topic: bool, colour: bool, columns: int | None = None) -> None:
        self._pointers = pointers
        self._with_topic = with_topic
        self._colour = colour
        self._key_max = (columns or shutil.get_terminal_size().columns) // _PART_MAX
        self._widths = {"topic": 0, "key": 0}
        self._date = ""

    def __call__(self, message: Message) -> bytes:
        """Format a record; a line with the date comes before the first one of a day."""
        date, _, time = time_text(message.pointer).partition("T")
        before = ""
        if date != self._date:
            self._date = date
            before = self._painted(f"--- {date} UTC ---", _TIME) + "\n"
        parts = [f"{message.pointer}"] if self._pointers else []
        parts.append(self._painted(time[:12], _TIME))
        if self._with_topic:
            parts.append(self._padded("topic", printable(message.topic), _TOPIC))
        key = "" if message.key is None else shown(message.key)
        if key or self._widths["key"]:
            parts.append(self._padded("key", key, _KEY))
        parts.append(shown(message.value))
        parts += [self._painted(text, _HEADER) for text in headers_texts(message)]
        return (before + "  ".join(parts) + "\n").encode("utf-8", "backslashreplace")

    def _padded(self, column: str, text: str, colour: str) -> str:
        width = cells_of(text)
        self._widths[column] = max(self._widths[column], min(width, self._key_max))
        return self._painted(text, colour) + " " * (self._widths[column] - width)

    def _painted(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour and text else text


def line_of(
    printer: Printer, *, with_topic: bool = False, in_columns: bool = False, pointers: bool = False
) -> Callable[[Message], bytes]:
    """Return the function that formats a record: in columns, or as the printer does."""
    if in_columns:
        return PrintedColumns(pointers=pointers, with_topic=with_topic, colour=has_colour())
    return partial(printer.encoded, with_topic=with_topic)
