"""The process of a driver, which uses the client under test: a session a line in, its results a line out."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from player.deviation import Deviation

END_S = 5.0
"""Seconds for a driver to end once its input has ended."""


class Driver:
    """A driver, started with the first session, and again after it has ended. Belongs to one thread."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._running: subprocess.Popen[bytes] | None = None
        self._read = b""

    def begin(self, job: dict[str, Any]) -> None:
        """Hand over a session. Raises `Deviation` if the driver cannot be started."""
        if self._running is None or self._running.poll() is not None:
            self.close()
            try:
                self._running = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            except OSError as problem:
                raise Deviation(f"the driver does not start: {problem}") from None
        assert self._running.stdin is not None
        with suppress(BrokenPipeError):  # what it has printed, or not, says that it has ended
            self._running.stdin.write(json.dumps(job).encode() + b"\n")
            self._running.stdin.flush()

    @property
    def fd(self) -> int:
        """The descriptor that gets readable with the result."""
        assert self._running is not None
        assert self._running.stdout is not None
        return self._running.stdout.fileno()

    def read(self) -> dict[str, Any] | None:
        """Read what has come, and return the result once its line is whole. Raises `Deviation`."""
        more = os.read(self.fd, 2**20)
        if not more:
            self.kill()
            raise Deviation("the driver has ended without a result")
        self._read += more
        line, end, rest = self._read.partition(b"\n")
        if not end:
            return None
        self._read = rest
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            self.kill()
            raise Deviation(f"the driver writes what is no JSON object: {line[:200]!r}")
        return found

    def kill(self) -> None:
        """End a driver that would not end by itself."""
        if self._running is not None:
            self._running.kill()
        self.close()

    def close(self) -> None:
        """End the driver's input, and wait for its end."""
        running, self._running, self._read = self._running, None, b""
        if running is None:
            return
        assert running.stdin is not None
        assert running.stdout is not None
        with suppress(BrokenPipeError):
            running.stdin.close()
        try:
            running.wait(END_S)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        running.stdout.close()
