"""The sync thread: one fsync for everybody who waits for it, away from the workers."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import NamedTuple

from quothd.threads.inbox import Inbox
from quothlog.appending.sync_request import SyncRequest


class Synced(NamedTuple):
    """A ticket that was run, and what went wrong."""

    ticket: SyncRequest
    problem: OSError | None


class FsyncThread:
    """Runs sync tickets in the order they came and puts the outcome into the asking worker's inbox."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="quoth-sync", daemon=True)
        self._tickets: SimpleQueue[tuple[SyncRequest, Inbox] | None] = SimpleQueue()
        self.runs = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, ticket: SyncRequest, inbox: Inbox) -> None:
        """Run a ticket; `Synced` will arrive in the inbox."""
        self._tickets.put((ticket, inbox))

    def stop(self, until: float) -> None:
        """End after what was submitted; wait for it until the monotonic clock says so."""
        self._tickets.put(None)
        if self._thread.is_alive():
            self._thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while (submitted := self._tickets.get()) is not None:
            ticket, inbox = submitted
            problem = None
            try:
                ticket.run()
            except OSError as failure:
                problem = failure
            self.runs += 1
            inbox.bring(Synced(ticket, problem))
