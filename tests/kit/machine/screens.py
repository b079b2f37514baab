"""Terminals for a program and for the command `quoth`, and the text that appears on them."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from kit.deadlines import DEADLINE_S
from kit.machine.commands import Command, Ended, Running
from kit.machine.processes import children

ABORT_S = 5.0
"""Time in which an aborted process begins to print."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A program on a terminal of its own, which sends Ctrl-C to all of its processes."""

    def __init__(self, *command: str, **environment: str) -> None:
        self.seen = ""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.execve(command[0], command, {**os.environ, **environment})

    def type(self, text: str) -> None:
        """Press keys: Ctrl-C is `\\x03`."""
        os.write(self._terminal, text.encode())

    def read_until(self, is_there: Callable[[str], bool], seconds: float = DEADLINE_S) -> bool:
        """Read until that is true of all that was seen; false if the program ends before."""
        until = time.monotonic() + seconds
        while not is_there(self.seen):
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                self._abort()
                raise AssertionError(self.seen)
            if not self._read():
                return False
        return True

    def _read(self) -> bool:
        try:
            self.seen += self._decode(os.read(self._terminal, 65_536))
        except OSError:  # Linux reports the end of the last writer so
            return False
        return True

    def _abort(self) -> None:
        """Kill the program, and before it its children, by SIGABRT, at which pytest prints its threads."""
        found = [self._pid]
        for process in found:
            found.extend(children(process))
        for process in found[1:]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGABRT)
        while select.select([self._terminal], [], [], ABORT_S)[0] and self._read():
            pass
        os.kill(self._pid, signal.SIGKILL)

    def end(self) -> int:
        """Wait for the end; returns the exit status."""
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def close(self) -> None:
        """Kill the program."""
        os.kill(self._pid, signal.SIGKILL)
        self.end()


class Screen:
    """A terminal of a size. environment: additional variables of the command on it."""

    def __init__(self, lines: int, columns: int, environment: Mapping[str, str] | None = None) -> None:
        size = {"TERM": "xterm", "LINES": str(lines), "COLUMNS": str(columns), "NO_COLOR": ""}
        self.environment = {**size, **(environment or {})}
        self.seen = ""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._ours, self._theirs = pty.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def show(self, command: Command, *arguments: str, errors: bool = False) -> Running:
        """Start a command on it. errors: show its stderr, too."""
        streams = {"stdout": self._theirs, "stdin": self._theirs} | (
            {"stderr": self._theirs} if errors else {}
        )
        running = command.start(*arguments, environment=self.environment, **streams)
        os.close(self._theirs)
        return running

    def show_errors(self, command: Command, *arguments: str) -> Ended:
        """Run a command to its end with only its stderr on the screen, and close the screen."""
        running = command.start(*arguments, environment=self.environment, stderr=self._theirs)
        os.close(self._theirs)
        self.wait_for_end()
        ended = running.end()
        self.close()
        return ended

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, is_there: Callable[[str], bool]) -> None:
        """Wait until a condition on all text so far is true."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_there(self.seen):
            ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self.seen
            self.seen += self._decode(os.read(self._ours, 65_536))

    def wait_for_end(self) -> None:
        """Wait until the command has ended, and with it the last writer."""
        try:
            while part := os.read(self._ours, 65_536):
                self.seen += self._decode(part)
        except OSError:  # the end of file on Linux
            pass

    def ended(self, running: Running) -> list[str]:
        """Wait until a command on it has succeeded, and close it; returns its lines."""
        self.wait_for_end()
        assert subprocess.Popen.wait(running.process, DEADLINE_S) == 0
        self.close()
        return self.lines

    @property
    def lines(self) -> list[str]:
        return _COLOUR.sub("", self.seen).replace("\r\n", "\n").splitlines()

    def close(self) -> None:
        os.close(self._ours)
