"""The thread that runs fsync for all topics: one for all publishes of a topic that wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from quothd.requests.events import SyncDone
from quothlog.appender import SyncRequest

Back = Callable[[SyncDone], None]


class FsyncThread:
    """Runs fsyncs in the order in which they were submitted. runs: how many it has run."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="quoth-fsync", daemon=True)
        self._submitted: SimpleQueue[tuple[SyncRequest, Back] | None] = SimpleQueue()
        self.runs = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, request: SyncRequest, back: Back) -> None:
        """Run an fsync, then call `back`."""
        self._submitted.put((request, back))

    def stop(self, seconds: float) -> None:
        """End after what was submitted; wait so long for it."""
        self._submitted.put(None)
        if self._thread.is_alive():
            self._thread.join(max(0.0, seconds))

    def _run(self) -> None:
        while (submitted := self._submitted.get()) is not None:
            request, back = submitted
            problem = None
            try:
                request.run()
            except OSError as failure:
                problem = failure
            self.runs += 1
            back(SyncDone(request, problem))
