"""Makes another thread the front end when a disk stalls the one that is.

A guard thread looks whether the front end has been at one thing for `STALL_S`, and whether a disk is the
reason: then the guard goes on as the front end, and the stalled thread ends once it has done what it is at.
A thread that waits for a disk sleeps uninterruptibly, which Linux tells. Elsewhere time alone decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from quothd.service.log_events import note
from quothlog.storage.clock import Clock

STALL_S = 0.01
"""More than what is quick takes on a good disk, less than a person notices."""
AGAIN_S = 1.0
"""Where no thread could be started, the next attempt follows after so long."""
QUIET_S = 0.1
"""After so long without anything to watch, the guard sleeps."""


class TakenOver(Exception):
    """Another thread is the front end now: this one has nothing more to do."""


class StallGuard:
    """Watches the thread that is the front end.

    serve: goes on as the front end, until the broker ends. is_stalled: whether a thread, by its native id,
    waits for a disk. takeovers: how often the front end has changed.
    """

    def __init__(self, serve: Callable[[], None], clock: Clock, is_stalled: Callable[[int], bool]) -> None:
        self.takeovers = 0
        self._serve = serve
        self._clock = clock
        self._is_stalled = is_stalled
        self._thread: threading.Thread | None = None
        self._again_at = 0.0
        self._lock = threading.Lock()
        self._wanted: SimpleQueue[None] = SimpleQueue()
        self._sleeps = False
        self._ended = False
        self._front_id = 0
        self._held = False
        self._since = 0.0
        self._topic = ""

    def start(self) -> None:
        """Begin to watch, if a thread can be started."""
        self._thread = thread = threading.Thread(target=self._run, name="quoth-stall-guard", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as problem:
            self._thread, self._again_at = None, self._clock.monotonic() + AGAIN_S
            note("stall_guard_missing", problem=problem)

    def stop(self) -> None:
        """End the guard. For the front end, once it does nothing more that is watched."""
        self._ended = True
        self._wanted.put(None)
        if self._thread is not None:
            self._thread.join()

    def enter(self) -> None:
        """Note that the calling thread is the front end."""
        self._front_id = threading.get_native_id()

    def can_watch(self, now: float) -> bool:
        """Return True if there is a thread that watches; starts one if there is none and one can be started.

        Without it the front end may do nothing that a disk could stall.
        """
        if self._thread is None and now >= self._again_at:
            self.start()
        return self._thread is not None

    def begin(self, topic: str, now: float) -> int:
        """Watch the front end from now on; returns what `is_taken_over` asks for.

        Another thread may be the front end as soon as this returns, where the system cannot tell whether a
        disk is the reason.
        """
        with self._lock:  # so that a takeover is either before the watch or seen at its end
            watch = self.takeovers
            self._topic = topic
            self._since = now
            self._held = True
        if self._sleeps:
            self._wanted.put(None)
        return watch

    def is_taken_over(self, watch: int) -> bool:
        """End a watch; returns whether another thread has become the front end meanwhile."""
        with self._lock:
            self._held = False if self.takeovers == watch else self._held
            return self.takeovers != watch

    def _run(self) -> None:
        while not self._ended:
            if self._take_over():
                note("front_end_stalled", topic=self._topic)
                self.start()
                self._serve()
                return
            is_quiet = not self._held and self._clock.monotonic() - self._since > QUIET_S
            self._pause(None if is_quiet else STALL_S)

    def _take_over(self) -> bool:
        """Become the front end if a disk stalls the thread that is."""
        with self._lock:
            is_long = self._held and self._clock.monotonic() - self._since >= STALL_S
            if not is_long or not self._is_stalled(self._front_id):
                return False
            self._held = False
            self.takeovers += 1
            return True

    def _pause(self, seconds: float | None) -> None:
        """Wait; None: until there is something to watch."""
        self._sleeps = seconds is None
        if not self._ended and not (self._sleeps and self._held):
            with suppress(Empty):
                self._wanted.get(timeout=seconds)
        self._sleeps = False
