"""The threads that read sealed segments, so that a cold disk never stalls the owner of a log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from quothd.requests.events import Query, ReadDone
from quothd.requests.pending_request import PendingRequest

READERS = 2

Back = Callable[[ReadDone], None]


class ReaderPool:
    """Executes queries in the order in which they were submitted, as many at a time as there are threads."""

    def __init__(self) -> None:
        self._submitted: SimpleQueue[tuple[PendingRequest, Query, Back] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"quoth-reader-{number}", daemon=True)
            for number in range(READERS)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, request: PendingRequest, query: Query, back: Back) -> None:
        """Execute a query for a request, then call `back`."""
        self._submitted.put((request, query, back))

    def stop(self, until: float, monotonic: Callable[[], float]) -> None:
        """End after what was submitted; wait for it until the monotonic clock says so."""
        for _ in self._threads:
            self._submitted.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until - monotonic()))

    def _run(self) -> None:
        while (submitted := self._submitted.get()) is not None:
            request, query, back = submitted
            try:
                done = ReadDone(request, query, query.read(), None)
            except Exception as problem:
                done = ReadDone(request, query, None, problem)
            back(done)
