"""The log writer: how the daemon writes its log to stderr, one event a line.

    text   2026-01-02T03:04:05.000001Z warning event=stray_ignored topic=orders file=core
           what is for people first of all in their words: quothd: ready tcp://127.0.0.1:5555
    json   {"time": "2026-01-02T03:04:05.000001Z", "level": "warning", "event": "stray_ignored", ...}

An event that repeats itself is written twenty times a second, then how many of it were left out: a disk that
fails must not fill the other one. To the journal of systemd each line tells its priority.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from quothd.service.log_events import EVENTS, line_of
from quothwire import pointer

REPEATS_MAX = 20
WINDOW_S = 1.0
FOREIGN = "message"
"""The event of what other libraries log."""
STDERR = 2
JOURNAL_VARIABLE = "JOURNAL_STREAM"

_PRIORITIES = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}
"""Of syslog, in angle brackets before a line, as sd-daemon(3) has it."""


class LogWriter(logging.Handler):
    """Writes records to a stream. To be the handler of the root logger, and closed at the end."""

    def __init__(self, stream: TextIO, *, prioritized: bool = False) -> None:
        super().__init__()
        self.form = "text"
        self._stream = stream
        self._prioritized = prioritized
        self._repeats = Repeats(self._write_suppressed)
        self.addFilter(self._repeats)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a stderr that is gone is no reason to stop."""
        event, fields = _content(record)
        self._write(record.levelno, record.created, event, fields)

    def close(self) -> None:
        """Write how many repeats were left out."""
        self._repeats.close()
        super().close()

    def _write(self, level: int, moment: float, event: str, fields: Mapping[str, Any]) -> None:
        words = (_json if self.form == "json" else _text)(level, moment, event, fields)
        priority = f"<{_PRIORITIES.get(level, 6)}>" if self._prioritized else ""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{priority}{words}\n")  # in one piece: others write to it too
            self._stream.flush()

    def _write_suppressed(self, event: str, level: int, count: int) -> None:
        fields: dict[str, Any] = {"suppressed": count}
        if event not in EVENTS:
            event, fields = FOREIGN, {"logger": event, **fields}
        self.acquire()
        try:
            self._write(level, time.time(), event, fields)
        finally:
            self.release()


class Repeats(logging.Filter):
    """Lets `REPEATS_MAX` records of an event through in `WINDOW_S`, and tells of the others when it is over.

    tell: called with the event, or the logger of another library, its level, and how many were left out.
    """

    def __init__(self, tell: Callable[[str, int, int], None]) -> None:
        super().__init__()
        self._tell = tell
        self._lock = threading.Lock()
        self._until = 0.0
        self._counts: dict[tuple[str, int], int] = {}
        self._timer: threading.Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Is it to be written?"""
        kind = getattr(record, "event", record.name), record.levelno
        with self._lock:
            over = self._begin_window() if time.monotonic() >= self._until else {}
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            if count == REPEATS_MAX + 1:
                self._wake_later()
        self._tell_all(over)
        return count <= REPEATS_MAX

    def close(self) -> None:
        """Tell of what was left out; to be called once nobody logs any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._end_window()

    def _begin_window(self) -> dict[tuple[str, int], int]:
        """Begin to count anew; returns what was counted."""
        counts, self._counts = self._counts, {}
        self._until = time.monotonic() + WINDOW_S
        return counts

    def _end_window(self) -> None:
        with self._lock:
            self._timer = None
            counts = self._begin_window()
        self._tell_all(counts)

    def _tell_all(self, counts: Mapping[tuple[str, int], int]) -> None:
        for (event, level), count in counts.items():
            if count > REPEATS_MAX:
                self._tell(event, level, count - REPEATS_MAX)

    def _wake_later(self) -> None:
        """Let it be told even if nothing more is written; without a thread, the next record sees to it."""
        if self._timer is None:
            timer = threading.Timer(max(0.0, self._until - time.monotonic()), self._end_window)
            timer.daemon = True
            with contextlib.suppress(RuntimeError, MemoryError):
                timer.start()
                self._timer = timer


def to_journal(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Does what is written there go to the journal of systemd?"""
    with contextlib.suppress(OSError, ValueError):
        status = os.fstat(stream.fileno())
        return environment.get(JOURNAL_VARIABLE) == f"{status.st_dev}:{status.st_ino}"
    return False


def install(level: str = "info", form: str = "text") -> LogWriter:
    """Let everything that is logged in this process go to stderr, as it is configured."""
    stream = sys.stderr or _nowhere()
    writer = LogWriter(stream, prioritized=to_journal(stream))
    logging.getLogger().addHandler(writer)
    configure(writer, level, form)
    return writer


def configure(writer: LogWriter, level: str, form: str) -> None:
    """Go by another level and another form from now on."""
    writer.form = form
    logging.getLogger().setLevel(level.upper())


def _nowhere() -> TextIO:
    """For a process that was started without stderr: else a file of a log would get that number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    return open(STDERR, "w", closefd=False)


def _content(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """A record as an event and its fields; those of other libraries have none."""
    event = getattr(record, "event", "")
    if event in EVENTS:
        fields = dict(getattr(record, "fields", {}))
    else:
        event, fields = FOREIGN, {"logger": record.name, "text": _message(record)}
    if record.exc_info and record.exc_info[1] is not None:
        fields["traceback"] = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
    return event, fields


def _message(record: logging.LogRecord) -> str:
    """What another library says; both its words and their arguments if they do not fit: no trouble for it."""
    try:
        return record.getMessage()
    except Exception:
        return f"{record.msg!r} {record.args!r}"


def _text(level: int, moment: float, event: str, fields: Mapping[str, Any]) -> str:
    if EVENTS[event].spoken and "suppressed" not in fields:
        return f"quothd: {_harmless(EVENTS[event].spoken.format(**fields))}"
    return f"{_time(moment)} {logging.getLevelName(level).lower()} {line_of(event, fields)}"


def _json(level: int, moment: float, event: str, fields: Mapping[str, Any]) -> str:
    content = {"time": _time(moment), "level": logging.getLevelName(level).lower(), "event": event, **fields}
    return json.dumps(content, default=str)


def _harmless(text: str) -> str:
    """Text without what would end the line or disturb a terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _time(moment: float) -> str:
    return pointer.to_text(int(moment * 1e6))
