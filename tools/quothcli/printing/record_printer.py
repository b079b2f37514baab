"""Prints records, advances a cursor behind them, and reports gaps and delays on stderr.

A record is done when the system has taken its line. A write is never larger than what a pipe takes whole, and
waits until the pipe has room for it. So the cursor stands exactly behind the written records when the pipe's
reader or the command ends, also while the reader takes nothing. It is saved once for all records that came
together.
"""

from __future__ import annotations

import math
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from quothcli.cli.exit_status import CommandStatus, say
from quothcli.printing.output import Printer
from quothcli.printing.text import ordinals_text, records_text
from quothcli.records.filters import Filter
from quothwire.pointer import time_text

if TYPE_CHECKING:
    from quoth import Cursor, Gap, Message, Reading


SILENT_LOOKS = 2
"""Looks at a record that is held back after which the topics are reported that a merge waits for."""
WRITE_BYTES = select.PIPE_BUF
"""Size of a write that a pipe takes whole or not at all."""
LOOK_MS = 200
"""Time between two questions whether to stop, while the output takes nothing."""


class OutputBlocked(Exception):
    """Raised while the reader of the output takes nothing, once a `RecordPrinter` is to stop."""


class RecordPrinter:
    """Prints records, up to a number if there is one.

    line: formats a record. passes: the filter of the records that are printed; the others count as done, and
    not for the number. is_stopped: asked while the output takes nothing; `take` ends then with
    `OutputBlocked`. written: the number of records that are done.
    """

    def __init__(
        self,
        line: Callable[[Message], bytes],
        cursor: Cursor | None = None,
        number: int | None = None,
        passes: Filter | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.written = 0
        self._line = line
        self._cursor = cursor
        self._left = math.inf if number is None else number
        self._passes = passes
        self._is_stopped = is_stopped
        self._output = sys.stdout.fileno()
        self._room = select.poll()
        self._room.register(self._output, select.POLLOUT)
        self._parts: list[tuple[bytes, Message | None]] = []
        """What is not written yet: lines, or parts of long ones, the last of which brings the record."""
        self._bytes = 0
        self._taken: list[int] = []
        """The sizes of the writes in which the system has taken bytes of the parts."""

    def __enter__(self) -> Self:
        self._save()  # the beginning is known, even if nothing comes for a while
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parts.clear()  # a write might wait for ever

    @property
    def is_done(self) -> bool:
        """True if the number of records is reached."""
        return self._left <= 0

    def take(self, messages: Sequence[Message]) -> None:
        """Print records, hand them on, and save the cursor behind them.

        Interrupted, it hands on what is printed, unless it would have to wait for that.
        """
        try:
            for message in messages:
                if self.is_done:
                    break
                passes = self._passes is None or self._passes(message)
                self._add(self._line(message) if passes else b"", message)
                self._left -= passes
            self._hand_on()
        except OSError:
            raise
        except BaseException:
            if not self._unwritten() or self._room.poll(0):
                self._flush()
            raise
        self._save()

    def _add(self, line: bytes, message: Message) -> None:
        if self._bytes and self._bytes + len(line) > WRITE_BYTES:
            self._hand_on()
        begin = 0
        while len(line) - begin > WRITE_BYTES:
            self._parts.append((line[begin : begin + WRITE_BYTES], None))
            self._hand_on()
            begin += WRITE_BYTES
        self._parts.append((line[begin:], message))
        self._bytes += len(line) - begin

    def _save(self) -> None:
        if self._cursor is not None:
            self._cursor.save()

    def _hand_on(self) -> None:
        while not self._room.poll(LOOK_MS):
            if self._is_stopped():
                raise OutputBlocked
        self._flush()

    def _flush(self) -> None:
        """Write the parts, and advance the cursor behind their records.

        Interrupted and called again, it writes nothing twice: the handler of a signal runs between two steps
        of Python code, and there is none between a write and the note of its size.
        """
        while data := self._unwritten():
            self._taken.extend(map(os.write, (self._output,), (data,)))
        records = [record for _, record in self._parts if record is not None]
        if self._cursor is not None:
            for record in {record.topic: record for record in records}.values():
                self._cursor.advance(record)
        written = self.written + len(records)
        self.written, self._parts, self._taken, self._bytes = written, [], [], 0

    def _unwritten(self) -> bytes:
        return b"".join([part for part, _ in self._parts])[sum(self._taken) :]


class GapReporter:
    """Reports on stderr the records that are missing. status: failed after damage."""

    def __init__(self) -> None:
        self.status = CommandStatus.DONE

    def __call__(self, gap: Gap) -> None:
        """Report a gap."""
        if gap.reason == "recreated":
            say(f"quoth: topic {gap.topic!r} was deleted and created again: older records are gone")
        elif gap.reason == "ahead":
            text = f"begins at pointer {gap.next}, above the newest record, {gap.after}"
            say(f"quoth: topic {gap.topic!r}: what is read {text}")
        else:
            count = "an unknown number of records" if gap.records < 0 else records_text(gap.records)
            where = f"behind pointer {gap.after}, resumes at pointer {gap.next}"
            say(f"quoth: {count} gone, {gap.reason}: {where}{ordinals_text(gap.ordinal, gap.records)}")
        if gap.reason == "damaged":
            self.status = CommandStatus.FAILED


class MergeReporter:
    """Reports on stderr, once each time, the topics that a merge waits for, and records that came late."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._silent = 0
        self._late = 0

    def look(self, messages: Iterable[Message]) -> None:
        """Report after these records, or none, have come."""
        waiting = {} if messages else self._reading.waiting_for
        self._silent = self._silent + 1 if waiting else 0
        if self._silent == SILENT_LOOKS:
            for topic, reason in list(waiting.items())[:SILENT_LOOKS]:
                say(f"quoth: records wait for topic {topic!r}: {reason}")
        if self._reading.late > self._late:
            late, self._late = self._reading.late - self._late, self._reading.late
            say(f"quoth: {records_text(late)} came after younger ones: the broker's clock stepped back")


def print_watermark(printer: Printer, pointer: int) -> None:
    """Print the pointer up to which everything is printed: as an object between records, else on stderr."""
    if printer.gives_objects:
        printer.object({"watermark": pointer, "time": time_text(pointer)})
        printer.flush()
    else:
        say(f"quoth: watermark {pointer} {time_text(pointer)}")


def are_several(topics: Sequence[str]) -> bool:
    """True if records of more than one topic may come."""
    from quoth.merging.selection import is_pattern

    return len(topics) > 1 or any(map(is_pattern, topics))


def opened(path: Path | None, *, has_beginning: bool) -> AbstractContextManager[Cursor | None]:
    """Open the cursor in a file, to be saved and closed at the end.

    has_beginning: an option names the beginning; stderr says so if the file knows better.
    """
    from quoth import Cursor

    if path is None:
        return nullcontext()
    cursor = Cursor(path)
    if cursor.topics and has_beginning:
        say(f"quoth: {path} says where to go on; -n, --after and --since say where a new file begins")
    return cursor


def end_with_reader(end: Callable[[FrameType | None], object] | None = None) -> None:
    """End this command when the reader of its output ends, even while there is nothing to print.

    end: called then by the handler of a signal, with the frame that it has interrupted; None to exit.
    """
    if not _is_pipe():
        return
    if not has_reader():
        raise SystemExit(CommandStatus.DONE)
    signal.signal(signal.SIGPIPE, partial(_end_without_reader, end or _leave))
    threading.Thread(target=_wait_for_reader, daemon=True).start()


def has_reader() -> bool:
    """Return False if the output is a pipe whose reader has ended."""
    return not (_is_pipe() and _end_of_reader().poll(0))


def _is_pipe() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:
        return False


def _wait_for_reader() -> None:
    _end_of_reader().poll()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGPIPE)


def _end_of_reader() -> select.poll:
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)  # only POLLERR, which poll always reports
    return poller


def _end_without_reader(
    end: Callable[[FrameType | None], object], number: int, frame: FrameType | None
) -> None:
    if has_reader():
        return  # the reader of another pipe, like that of stderr, has ended
    signal.signal(number, signal.SIG_IGN)  # the cursor is still to be saved
    end(frame)


def _leave(_frame: FrameType | None) -> None:
    raise SystemExit(CommandStatus.DONE)
