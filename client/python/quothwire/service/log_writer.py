"""Writes the log of a daemon to stderr, one event a line.

    text   2026-01-02T03:04:05.000001Z warning event=stray_ignored topic=orders file=core
           events with a sentence: quothd: ready tcp://127.0.0.1:5555
    json   {"time": "2026-01-02T03:04:05.000001Z", "level": "warning", "event": "stray_ignored", ...}

Of an event that repeats, twenty lines a second are written, then the number of the others: a disk that fails
must not fill the disk of the log. Each line for the journal of systemd begins with its priority.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TextIO

from quothwire import pointer
from quothwire.service.log_event import FOREIGN, LogEvent, line_of

REPEATS_MAX = 20
WINDOW_S = 1.0
STDERR = 2
JOURNAL_VARIABLE = "JOURNAL_STREAM"

_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""Priorities of syslog, which stand in angle brackets before a line, see sd-daemon(3)."""


class LogTimer(Protocol):
    """A thread that calls a function after a time."""

    daemon: bool

    def start(self) -> None:
        """Start the thread."""

    def cancel(self) -> None:
        """Let it call nothing any more."""


class LoggingProgram(NamedTuple):
    """A program with a log. name: begins each sentence. events: all of them. timer: makes a `LogTimer`."""

    name: str
    events: Mapping[str, LogEvent]
    timer: Callable[[float, Callable[[], None]], LogTimer]


class EventWriter(logging.Handler):
    """Writes records to a stream, at most `REPEATS_MAX` of an event in a window of time. Any thread.

    It is a handler of the root logger. prioritized: begin each line with its priority. form: ``text`` or
    ``json``. window_s: the length of a window.
    """

    def __init__(self, program: LoggingProgram, stream: TextIO, *, prioritized: bool = False) -> None:
        super().__init__()
        self._program = program
        self.form = "text"
        self.window_s = WINDOW_S
        self._stream = stream
        self._prioritized = prioritized
        self._counts: Counter[tuple[str, int]] = Counter()
        self._window_end = 0.0
        self._timer: LogTimer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, or count it as suppressed. Ignores a stream that is closed or full."""
        kind = getattr(record, "event", record.name), record.levelno
        if time.monotonic() >= self._window_end:
            self._begin_window()
        self._counts[kind] += 1
        if self._counts[kind] <= REPEATS_MAX:
            self._write(record.levelno, record.created, *self._content(record))
        elif self._timer is None:
            self._start_timer()

    def close(self) -> None:
        """Write the numbers of suppressed records. No thread may log any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._end_window()
        super().close()

    def _begin_window(self) -> None:
        """Write the numbers of the last window, and count from 0."""
        counts, self._counts = self._counts, Counter()
        self._window_end = time.monotonic() + self.window_s
        for (event, level), count in counts.items():
            suppressed = count - REPEATS_MAX
            if suppressed > 0 and event in self._program.events:
                self._write(level, time.time(), event, {"suppressed": suppressed})
            elif suppressed > 0:
                self._write(level, time.time(), FOREIGN, {"logger": event, "suppressed": suppressed})

    def _end_window(self) -> None:
        self.acquire()
        try:
            self._timer = None
            self._begin_window()
        finally:
            self.release()

    def _start_timer(self) -> None:
        """Let a timer end the window. If its thread cannot start, the first record after the window does."""
        timer = self._program.timer(max(0.0, self._window_end - time.monotonic()), self._end_window)
        timer.daemon = True
        with contextlib.suppress(RuntimeError, MemoryError):
            timer.start()
            self._timer = timer

    def _write(self, level: int, created: float, event: str, fields: Mapping[str, Any]) -> None:
        line = (_json if self.form == "json" else self._text)(level, created, event, fields)
        priority = f"<{_PRIORITIES.get(level, 6)}>" if self._prioritized else ""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{priority}{line}\n")  # one call: other processes write to it, too
            self._stream.flush()

    def _content(self, record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
        """Convert a record to an event and its fields."""
        event = getattr(record, "event", "")
        if event in self._program.events:
            fields = dict(getattr(record, "fields", {}))
        else:
            event, fields = FOREIGN, {"logger": record.name, "text": _message(record)}
        if record.exc_info and record.exc_info[1] is not None:
            fields["traceback"] = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        return event, fields

    def _text(self, level: int, created: float, event: str, fields: Mapping[str, Any]) -> str:
        sentence = self._program.events[event].sentence
        if sentence and "suppressed" not in fields:
            return f"{self._program.name}: {_printable(sentence.format(**fields))}"
        return f"{_time(created)} {logging.getLevelName(level).lower()} {line_of(event, fields)}"


def to_journal(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """True if the stream leads to the journal of systemd."""
    with contextlib.suppress(OSError, ValueError):
        status = os.fstat(stream.fileno())
        return environment.get(JOURNAL_VARIABLE) == f"{status.st_dev}:{status.st_ino}"
    return False


def install(program: LoggingProgram) -> EventWriter:
    """Write all log records of this process to stderr, at level info as text until `configure`."""
    stream = sys.stderr or _open_null_stderr()
    writer = EventWriter(program, stream, prioritized=to_journal(stream))
    logging.getLogger().addHandler(writer)
    configure(writer, "info", "text")
    return writer


def configure(writer: EventWriter, level: str, form: str) -> None:
    """Change the level and the form of the log."""
    writer.form = form
    logging.getLogger().setLevel(level.upper())


def _open_null_stderr() -> TextIO:
    """Open /dev/null as stderr of a process without one. Otherwise a log's file could get that number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    return open(STDERR, "w", closefd=False)


def _message(record: logging.LogRecord) -> str:
    """Format the message of another library; its parts unformatted if its arguments do not fit."""
    try:
        return record.getMessage()
    except Exception:
        return f"{record.msg!r} {record.args!r}"


def _json(level: int, created: float, event: str, fields: Mapping[str, Any]) -> str:
    content = {"time": _time(created), "level": logging.getLevelName(level).lower(), "event": event, **fields}
    return json.dumps(content, default=str)


def _printable(text: str) -> str:
    """Escape the characters that would end a line or disturb a terminal."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _time(seconds: float) -> str:
    return pointer.to_text(int(seconds * 1e6))
