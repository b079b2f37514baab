"""Makes another thread the front end when a disk stalls the one that is.

The front end does what is quick for a topic itself. The disk may stall it all the same, for seconds. A guard
thread notices that and goes on as the front end; the stalled thread ends once it has done what it is at.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from quothd.logbook import note

STALL_S = 0.01
"""More than what is quick takes on a good disk, less than a person notices."""
AGAIN_S = 1.0
"""Where no thread could be started, the next attempt follows after so long."""
QUIET_S = 0.1
"""After so long without anything to watch, the guard sleeps."""


class TakenOver(Exception):
    """Another thread is the front end now: this one has nothing more to do."""


class StallGuard:
    """Watches the thread that is the front end, and replaces one that stalls for `STALL_S` to twice that.

    serve: goes on as the front end, until the broker ends.
    """

    def __init__(self, serve: Callable[[], None]) -> None:
        self._serve = serve
        self._thread: threading.Thread | None = None
        self._again_at = 0.0
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._sleeps = False
        self._ended = False
        self._front = 0
        self._held = False
        self._since = 0.0
        self._topic = ""
        self.relieved = 0

    def start(self) -> None:
        """Begin to watch, if a thread can be started."""
        self._thread = thread = threading.Thread(target=self._run, name="quoth-stall-guard", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as problem:
            self._thread, self._again_at = None, time.monotonic() + AGAIN_S
            note("stall_guard_missing", problem=problem)

    def is_there(self) -> bool:
        """Return whether a guard watches. Without one, do nothing that a disk could stall."""
        if self._thread is None and time.monotonic() >= self._again_at:
            self.start()
        return self._thread is not None

    def stop(self) -> None:
        """End the guard. For the front end, once it does nothing more that is watched."""
        self._ended = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def watch(self, topic: str, work: Callable[[], None]) -> None:
        """Do something that may stall. Raises `TakenOver` if another thread is the front end by then."""
        front = self._front
        self._topic = topic
        self._since = time.monotonic()
        self._held = True
        if self._sleeps:
            self._wanted.set()
        try:
            work()
        finally:
            with self._lock:
                if self._front != front:
                    raise TakenOver
                self._held = False

    def _run(self) -> None:
        while not self._ended:
            if self._take_over():
                note("front_end_stalled", topic=self._topic)
                self.start()
                self._serve()
                return
            quiet = not self._held and time.monotonic() - self._since > QUIET_S
            self._pause(None if quiet else STALL_S)

    def _take_over(self) -> bool:
        with self._lock:
            held_up = self._held and time.monotonic() - self._since >= STALL_S
            if held_up:
                self._front += 1
                self._held = False
                self.relieved += 1
        return held_up

    def _pause(self, seconds: float | None) -> None:
        """Wait; None: until there is something to watch."""
        self._wanted.clear()
        self._sleeps = seconds is None
        if not self._ended and not (self._sleeps and self._held):
            self._wanted.wait(seconds)
        self._sleeps = False
