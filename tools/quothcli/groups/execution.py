"""Runs a command for records: what it gets, several at a time, what its exit status means."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quoth.tracing.carrier import NAMES, TRACEPARENT, text_of
from quothcli.cli.exit_status import Refused
from quothcli.cli.session import CONTEXT_VARIABLE, KEY_VARIABLE, URL_VARIABLE
from quothwire.text.variables import HEADER_PREFIX

if TYPE_CHECKING:
    from quoth import GroupMessage

KEY_BYTES_MAX = 90_000
"""Bytes of a key in a variable; Linux takes 128 KiB. All headers of a record together have at most 64 KiB."""
LOOK_S = 0.2
KILLED_S = 2.0
"""Time that a command has to end after SIGTERM."""


_HEADER = HEADER_PREFIX.encode()
_CONTEXT = {name: name.upper().encode() for name in NAMES}
"""The variables by which a process gets the context of a trace, by the headers of a record."""
_ABOUT_RECORDS = frozenset(
    f"QUOTH_{name}".encode()
    for name in ("TOPIC", "GROUP", "POINTER", "ATTEMPTS", "KEY", "KEY_BASE64", "RECORDS")
)
"""The variables of a command that say what it gets, without those of headers."""


class Verdict(Enum):
    """The meaning of an exit status."""

    ACK = "acknowledged"
    NACK = "given back"
    TERM = "rejected"
    NOT_STARTED = "not started"


VERDICTS = {0: Verdict.ACK, os.EX_DATAERR: Verdict.TERM, 126: Verdict.NOT_STARTED, 127: Verdict.NOT_STARTED}
"""Of the exit statuses that do not give a record back. A shell ends with 126 and 127 if it cannot start a
command."""


def variables_of(message: GroupMessage, group: str) -> dict[bytes, bytes]:
    """Return the variables that tell a command about a record.

    Left out is what no variable can hold: a header with a NUL, a key that is too long. A key with a NUL is in
    QUOTH_KEY_BASE64.
    """
    found = {
        b"QUOTH_TOPIC": message.topic.encode(),
        b"QUOTH_GROUP": group.encode(),
        b"QUOTH_POINTER": b"%d" % message.pointer,
        b"QUOTH_ATTEMPTS": b"%d" % message.attempts,
    }
    key = message.key
    if key is not None and len(key) <= KEY_BYTES_MAX:
        if b"\0" not in key:
            found[b"QUOTH_KEY"] = key
        else:
            found[b"QUOTH_KEY_BASE64"] = base64.b64encode(key)
    for header, value in message.headers.items():
        name = HEADER_PREFIX + re.sub(r"[^A-Z0-9_]", "_", header.upper())
        if b"\0" not in value:
            found.setdefault(name.encode(), value)
    return found | _context_of(message.headers)


def _context_of(headers: Mapping[str, bytes]) -> dict[bytes, bytes]:
    """Return the variables of the context of a record: TRACEPARENT, TRACESTATE and BAGGAGE.

    Left out is what is no line of ASCII, or longer than such a value may be.
    """
    return {
        variable: headers[name]
        for name, variable in _CONTEXT.items()
        if name in headers and text_of(headers[name]) is not None
    }


def _is_about_a_record(variable: bytes) -> bool:
    """Return True for a variable of an outer `quoth consume --exec`, which is about another record."""
    return variable in _ABOUT_RECORDS or variable.startswith(_HEADER)


class ShellCommand:
    """A command for the shell, run in a process group of its own: Ctrl-C lets it finish. Used by any thread.

    url: the broker that a `quoth` in it asks. key_file: the key with which it does, None for none.
    """

    def __init__(self, line: str, url: str, key_file: Path | None) -> None:
        self.line = line
        self.is_killed = False
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        inherited = os.environb.items()
        self._environment = {name: value for name, value in inherited if not _is_about_a_record(name)}
        self._environment.pop(CONTEXT_VARIABLE.encode(), None)
        self._environment[URL_VARIABLE.encode()] = url.encode()
        if key_file is not None:
            self._environment[KEY_VARIABLE.encode()] = os.fsencode(key_file.absolute())

    def run(self, given: bytes, variables: Mapping[bytes, bytes]) -> int:
        """Run it with something on stdin; returns its exit status, negative for a signal.

        A record with a trace replaces all of the context that this process was given. Raises `Refused`
        ``not_started``.
        """
        environment = {**self._environment, **variables}
        if _CONTEXT[TRACEPARENT] in variables:
            for variable in _CONTEXT.values():
                if variable not in variables:
                    environment.pop(variable, None)
        with self._lock:
            if self.is_killed:
                return -signal.SIGTERM
            try:
                process = subprocess.Popen(
                    self.line,
                    shell=True,
                    stdin=subprocess.PIPE,
                    env=environment,
                    process_group=0,
                )
            except OSError as problem:
                raise not_started(self.line, str(problem)) from None
            self._running.add(process)
        try:
            process.communicate(given)
        finally:
            with self._lock:
                self._running.discard(process)
        return process.returncode

    def kill(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to all that run, with their children, and start no other."""
        with self._lock:
            self.is_killed = True
            for process in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)


def not_started(line: str, reason: str) -> Refused:
    """Return the error for a command that cannot be started."""
    hint = "the record is released; is everything in it installed, and may it be executed?"
    return Refused("not_started", f"the command cannot be started: {line}: {reason}", hint)


class CommandPool:
    """Threads that handle records, one piece of work each.

    handle: called in a thread; an error of it is raised by the main thread's next call. kill: ends what runs
    when the main thread is interrupted, called with the signal. look: called now and then while that waits.
    """

    def __init__(
        self,
        size: int,
        handle: Callable[[Sequence[GroupMessage]], None],
        kill: Callable[[signal.Signals], None],
        look: Callable[[], None],
    ) -> None:
        self._size = size
        self._handle = handle
        self._kill = kill
        self._look = look
        self._threads = ThreadPoolExecutor(size, "quoth-exec")
        self._changed = threading.Condition()
        self._running = 0
        self._problem: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                self._wait(lambda: not self._running)
        finally:
            self._end_now()
            self._threads.shutdown(wait=False)
        if kind is None:
            self._raise_problem()

    @property
    def is_idle(self) -> bool:
        """True if nothing runs."""
        return not self._running

    def room(self) -> int:
        """Return how many pieces of work may be started; waits until it is one, at least."""
        self._wait(lambda: self._running < self._size or self._problem is not None)
        self._raise_problem()
        return self._size - self._running

    def start(self, records: Sequence[GroupMessage]) -> None:
        """Handle records in a thread."""
        with self._changed:
            self._running += 1
        self._threads.submit(self._run, records)

    def wait_for_one(self) -> None:
        """Wait until one piece of work is done, if there is any."""
        before = self._running
        self._wait(lambda: self._running < before or not self._running)
        self._raise_problem()

    # -- inside -----------------------------------------------------------------------------------------

    def _run(self, records: Sequence[GroupMessage]) -> None:
        problem: BaseException | None = None
        try:
            self._handle(records)
        except BaseException as raised:
            problem = raised
        with self._changed:
            self._running -= 1
            self._problem = self._problem or problem
            self._changed.notify_all()

    def _wait(self, is_done: Callable[[], bool]) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(is_done, LOOK_S):
                    return
            self._look()

    def _raise_problem(self) -> None:
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem

    def _end_now(self) -> None:
        """End what still runs: kindly, and then at once."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._running:
                self._kill(number)
                with self._changed:
                    self._changed.wait_for(lambda: not self._running, KILLED_S)
