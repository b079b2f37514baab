"""A terminal for a command, and the text that appears on it."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Callable, Mapping

from kit.deadlines import DEADLINE_S
from kit.machine.commands import Command, Ended, Running

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


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

    @property
    def lines(self) -> list[str]:
        return _COLOUR.sub("", self.seen).replace("\r\n", "\n").splitlines()

    def close(self) -> None:
        os.close(self._ours)
