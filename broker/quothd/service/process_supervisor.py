"""Runs a process beside the broker, starts it again when it ends, and counts its restarts.

The process is a client as any other: its death loses and doubles nothing. It ends with the broker, and its
lines of JSON on stdout become events of the log: see `quothwire.service.parent_process`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from quothd.service.log_events import EVENTS, note
from quothwire.security.key_file import Key
from quothwire.service.parent_process import KEY_ON_STDIN, SUPERVISED, encode_key_line

BACKOFF_S, BACKOFF_MAX_S = 0.5, 60.0
"""Pause before a process that has ended is started again; it doubles."""
HEALTHY_S = 60.0
"""A process that ran for longer begins with the shortest pause again."""
LOOK_S = 0.25
"""Between two looks at the process: the loop of the front end runs far more often."""
STOP_S = 1.0


class ProcessSupervisor(ABC):
    """Starts a process when it is wanted. Owned by the front end's thread.

    failed, ended: its events. name: begins the names of all its events and of its counters. module: of its
    `main`; named and not imported, since the broker has none of its code. urls: those of the broker; the
    process connects to the first one that other processes can reach. key: that of the process, None if
    clients need none. arguments: those behind the URL. descriptors: open files that it inherits.
    """

    failed: ClassVar[str]
    ended: ClassVar[str]

    def __init__(
        self,
        name: str,
        module: str,
        urls: Sequence[str],
        key: Key | None,
        *,
        arguments: Sequence[str] = (),
        descriptors: Sequence[int] = (),
    ) -> None:
        self._name = name
        self._module = module
        self._url = next((url for url in urls if not url.startswith("inproc:")), "")
        self._key = key
        self._arguments = arguments
        self._descriptors = descriptors
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._pause = BACKOFF_S
        self._started = self._next = self._look_at = 0.0
        self._starts = 0

    @abstractmethod
    def _is_wanted(self) -> bool:
        """Return True if the process is to run now."""

    def tick(self, now: float) -> None:
        """Start the process if it is due, or end it if it is not wanted any more."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        process = self._process
        if process is not None and process.poll() is not None:
            self._take_end(process, now)
        is_wanted = bool(self._url) and self._is_wanted()
        if not is_wanted and self._process is not None:
            self._kill()
        elif is_wanted and self._process is None and now >= self._next:
            self._start(now)

    def counters(self) -> dict[str, int]:
        """Return whether the process runs, and how often it was started again."""
        return {
            f"{self._name}_running": int(self._process is not None),
            f"{self._name}_restarts": max(0, self._starts - 1),
        }

    def stop(self) -> None:
        """Kill the process, for good. Does not wait for long."""
        self._kill()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _start(self, now: float) -> None:
        interpreter = sys.executable, "-I" if sys.flags.isolated else "-P"
        key_argument = () if self._key is None else (KEY_ON_STDIN,)
        command = *interpreter, "-m", self._module, self._url, SUPERVISED, *key_argument, *self._arguments
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # it ends with the broker
                stdout=subprocess.PIPE,
                process_group=0,  # Ctrl-C reaches the broker alone, which then kills it
                pass_fds=self._descriptors,
            )
            self._hand_over_key(process)
            self._process, self._started = process, now
            self._starts += 1
            name = f"quoth-{self._name}"
            thread = threading.Thread(target=self._collect, args=(process,), name=name, daemon=True)
            thread.start()
            self._thread = thread
        except (OSError, RuntimeError) as problem:
            self._kill()
            self._delay(now)
            note(self.failed, problem=problem)

    def _hand_over_key(self, process: subprocess.Popen[bytes]) -> None:
        """Write the key to the process: other programs may see its arguments and its variables."""
        if self._key is not None:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended already, see `_take_end`
                process.stdin.write(encode_key_line(self._key))
                process.stdin.flush()

    def _take_end(self, process: subprocess.Popen[bytes], now: float) -> None:
        """Plan the next start behind the end of a process."""
        self._process = None
        if now - self._started > HEALTHY_S:
            self._pause = BACKOFF_S
        note(self.ended, status=process.returncode, again_in=self._pause)
        self._delay(now)

    def _delay(self, now: float) -> None:
        """Plan the next start."""
        self._next = now + self._pause
        self._pause = min(2 * self._pause, BACKOFF_MAX_S)

    # -- the thread that reads the reports ---------------------------------------------------------------

    def _collect(self, process: subprocess.Popen[bytes]) -> None:
        """Take the reports of a process until its end."""
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                with suppress(ValueError, AttributeError, TypeError, KeyError):  # killed inside a line
                    self._take_report(json.loads(line))

    def _take_report(self, report: dict[str, Any]) -> None:
        """Log a report."""
        event = report.pop("event")
        if event in EVENTS and event.startswith(f"{self._name}_"):
            note(event, **report)
