"""The reader threads: sealed segments are read here, so that a cold disk never holds up a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from quothd.job import Job
from quothlog.lookup import Lookup
from quothlog.segment import Extract

READERS = 2


class Looked(NamedTuple):
    """A job whose lookup has been read: the batches, nothing, or the problem."""

    job: Job
    lookup: Lookup
    found: Extract | None
    problem: Exception | None


class Readers:
    """A few threads that read lookups and call back with what they found, in their own thread."""

    def __init__(self) -> None:
        self._lookups: SimpleQueue[tuple[Job, Lookup, Callable[[Looked], None]] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"quoth-reader-{i}", daemon=True) for i in range(READERS)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job, lookup: Lookup, back: Callable[[Looked], None]) -> None:
        """Read a lookup and call back."""
        self._lookups.put((job, lookup, back))

    def stop(self, until: float) -> None:
        """End after what was submitted; wait for it until the monotonic clock says so."""
        for _ in self._threads:
            self._lookups.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while (submitted := self._lookups.get()) is not None:
            job, lookup, back = submitted
            try:
                looked = Looked(job, lookup, lookup.read(), None)
            except Exception as problem:
                looked = Looked(job, lookup, None, problem)
            back(looked)
