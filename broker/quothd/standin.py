"""The stand-in: a thread that takes the front over when a disk holds up the one that has it.

The front end does what is quick for a topic itself. Whether it will be quick nobody knows before: the disk
may have it wait for seconds. Then the stand-in goes on as the front end, at the very next thing, and the
thread that is held up ends once it has done what it is at.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from quothd.logbook import note

HELD_UP_S = 0.01
"""More than what is quick takes on a good disk, less than anybody notices."""
AGAIN_S = 1.0
"""Where there was no thread to be had, it is tried again so often."""
QUIET_S = 0.1
"""After so long without anything to watch over, the stand-in sleeps."""


class Relieved(Exception):
    """Somebody else has the front now: this thread has nothing to do there any more."""


class StandIn:
    """Watches the thread that is the front end; one that is held up for `HELD_UP_S` to twice that loses it.

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
        """Begin to watch, if there is a thread to be had."""
        self._thread = thread = threading.Thread(target=self._run, name="quoth-stand-in", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as problem:
            self._thread, self._again_at = None, time.monotonic() + AGAIN_S
            note("stand_in_missing", problem=problem)

    def is_there(self) -> bool:
        """Does somebody watch? Without, nothing may be done that a disk could hold up."""
        if self._thread is None and time.monotonic() >= self._again_at:
            self.start()
        return self._thread is not None

    def stop(self) -> None:
        """Watch no more. For the front end, once it does nothing more that is watched over."""
        self._ended = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def watch(self, topic: str, work: Callable[[], None]) -> None:
        """Do something that may be held up. Raises `Relieved` if that has cost this thread the front."""
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
                    raise Relieved
                self._held = False

    def _run(self) -> None:
        while not self._ended:
            if self._is_held_up():
                note("held_up", topic=self._topic)
                self.start()
                self._serve()
                return
            quiet = not self._held and time.monotonic() - self._since > QUIET_S
            self._pause(None if quiet else HELD_UP_S)

    def _is_held_up(self) -> bool:
        with self._lock:
            held_up = self._held and time.monotonic() - self._since >= HELD_UP_S
            if held_up:
                self._front += 1
                self._held = False
                self.relieved += 1
        return held_up

    def _pause(self, seconds: float | None) -> None:
        """Wait; None: until there is something to watch over."""
        self._wanted.clear()
        self._sleeps = seconds is None
        if not self._ended and not (self._sleeps and self._held):
            self._wanted.wait(seconds)
        self._sleeps = False
