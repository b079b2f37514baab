"""Records on their way to stdout, the cursor that follows them, and what is said on stderr meanwhile.

A record is done when the system has taken its line. It gets no more at once than a pipe takes wholly, so the
cursor stands exactly behind what was written when the pipe's reader goes, or when the command is ended. It is
saved once for all that has come at once.
"""

from __future__ import annotations

import io
import math
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quothcli.cli.exit_status import Status, say
from quothcli.printing.output import Printer, ordinals_text, records_text, time_text
from quothcli.records.filters import Wanted

if TYPE_CHECKING:
    from quoth import Cursor, Gap, Message, Reading


BEATS_SAID = 2
"""Beats after which it is said what holds back the records of a merge."""
WRITE_BYTES = select.PIPE_BUF
"""What a pipe takes wholly or not at all."""


class Delivery:
    """Prints records, up to a number if there is one.

    line: how a record is printed. wanted: which ones are, if not all; the others count as done, and not for
    the number. As a context manager it hands on, at the end, what was printed, also when it is interrupted.
    """

    def __init__(
        self,
        line: Callable[[Message], bytes],
        cursor: Cursor | None,
        number: int | None,
        wanted: Wanted | None = None,
    ) -> None:
        self._line = line
        self._cursor = cursor
        self._left = math.inf if number is None else number
        self._wanted = wanted
        # Its own, since that of stdout is none with PYTHONUNBUFFERED: what is in it was not written.
        out = io.FileIO(sys.stdout.fileno(), "w", closefd=False)
        self._out = io.BufferedWriter(out, 2 * WRITE_BYTES)
        self._bytes = 0
        self._done: dict[str, Message] = {}
        """The last of each topic that is not handed on yet."""

    def __enter__(self) -> Self:
        self._save()  # where it begins is known, even if nothing comes for a while
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, OSError):
            self._hand_on()

    @property
    def is_done(self) -> bool:
        """Were there as many as wanted?"""
        return self._left <= 0

    def take(self, messages: Sequence[Message]) -> None:
        """Print records, hand them on, and keep in the cursor's file that they are done."""
        for message in messages:
            if self.is_done:
                break
            if self._wanted is None or self._wanted(message):
                self._print(self._line(message))
            self._done[message.topic] = message
        self._hand_on()
        self._save()

    def _print(self, line: bytes) -> None:
        if self._bytes and self._bytes + len(line) > WRITE_BYTES:
            self._hand_on()
        self._out.write(line)
        self._bytes += len(line)
        self._left -= 1

    def _save(self) -> None:
        if self._cursor is not None:
            self._cursor.save()

    def _hand_on(self) -> None:
        self._out.flush()
        if self._cursor is not None:
            for message in self._done.values():
                self._cursor.advance(message)
        self._done.clear()
        self._bytes = 0


class Gaps:
    """Says on stderr what is missing between the records. Damage makes the command fail in the end."""

    def __init__(self) -> None:
        self.status = Status.DONE

    def __call__(self, gap: Gap) -> None:
        """A gap was found."""
        if gap.reason == "recreated":
            say(f"quoth: topic {gap.topic!r} was deleted and made anew: older records are gone")
        elif gap.reason == "ahead":
            text = f"begins at pointer {gap.next}, above the newest record, {gap.after}"
            say(f"quoth: topic {gap.topic!r}: what is read {text}")
        else:
            count = "an unknown number of records" if gap.records < 0 else records_text(gap.records)
            where = f"behind pointer {gap.after}, resumes at pointer {gap.next}"
            say(f"quoth: {count} gone, {gap.reason}: {where}{ordinals_text(gap.ordinal, gap.records)}")
        if gap.reason == "damaged":
            self.status = Status.FAILED


class Holds:
    """Says on stderr, once each time, what holds back the records of a merge, and that some came late."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._silent = 0
        self._late = 0

    def look(self, messages: Iterable[Message]) -> None:
        """These came, or nothing."""
        self._silent = 0 if messages else self._silent + 1
        if self._silent == BEATS_SAID:
            for topic, reason in list(self._reading.waiting_for.items())[:BEATS_SAID]:
                say(f"quoth: records wait for topic {topic!r}: {reason}")
        if self._reading.late > self._late:
            late, self._late = self._reading.late - self._late, self._reading.late
            say(f"quoth: {records_text(late)} came after younger ones: the broker's clock stepped back")


def tell_watermark(printer: Printer, pointer: int) -> None:
    """Tell up to when everything has been printed: by an object between those of records, else on stderr."""
    if printer.gives_objects:
        printer.object({"watermark": pointer, "time": time_text(pointer)})
        printer.flush()
    else:
        say(f"quoth: watermark {pointer} {time_text(pointer)}")


def are_several(topics: Sequence[str]) -> bool:
    """May records of more than one topic come?"""
    from quoth.merging.selection import is_pattern

    return len(topics) > 1 or any(map(is_pattern, topics))


def opened(path: Path | None, *, has_beginning: bool) -> AbstractContextManager[Cursor | None]:
    """The cursor in a file, to be saved and closed at the end.

    has_beginning: was it typed where to begin? If the file says that, a line on stderr tells.
    """
    from quoth import Cursor

    if path is None:
        return nullcontext()
    cursor = Cursor(path)
    if cursor.topics and has_beginning:
        say(f"quoth: {path} says where to go on; -n, --after and --since say where a new file begins")
    return cursor


def end_with_reader() -> None:
    """End this command when whoever reads its output has gone, even while there is nothing to print."""
    try:
        if not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            return
    except OSError:
        return
    if _end_of_reader().poll(0):
        raise SystemExit(Status.DONE)
    signal.signal(signal.SIGPIPE, _reader_has_gone)
    threading.Thread(target=_wait_for_reader, daemon=True).start()


def _wait_for_reader() -> None:
    _end_of_reader().poll()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGPIPE)


def _end_of_reader() -> select.poll:
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)  # nothing but POLLERR, which cannot be left out
    return poller


def _reader_has_gone(number: int, _frame: object) -> None:
    if not _end_of_reader().poll(0):
        return  # it was the reader of another pipe, like that of stderr
    signal.signal(number, signal.SIG_IGN)  # once is enough, and the cursor is still to be saved
    raise SystemExit(Status.DONE)
