"""Runs fsyncs, cold reads and commits, so that no disk stalls the thread that has a topic's token."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from quothd.connections.connection import LEAST_REPLY_BYTES
from quothd.requests.events import CommitStepDone, Query, ReadDone, SyncDone
from quothd.requests.pending_request import PendingRequest
from quothlog.appender import SyncRequest
from quothlog.transactions.commit import Commit

Work = Callable[[], Any]
Back = Callable[[Any], None]


class ThreadPool:
    """Executes work in the order in which it was submitted. names: of the threads. runs: how much is done."""

    def __init__(self, *names: str) -> None:
        self._submitted: SimpleQueue[tuple[Work, Back] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for name in names]
        self.runs = 0

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, work: Work, back: Back) -> None:
        """Execute some work, then call `back` with its result."""
        self._submitted.put((work, back))

    def stop(self, until: float, monotonic: Callable[[], float]) -> None:
        """End after what was submitted; wait for it until the monotonic clock says so."""
        for _ in self._threads:
            self._submitted.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until - monotonic()))

    def _run(self) -> None:
        while (submitted := self._submitted.get()) is not None:
            work, back = submitted
            item = work()
            self.runs += 1
            back(item)


def run_sync(request: SyncRequest) -> SyncDone:
    """Run an fsync."""
    began, problem = time.monotonic(), None
    try:
        request.run()
    except OSError as caught:
        problem = caught
    return SyncDone(request, problem, time.monotonic() - began)


def run_query(request: PendingRequest, query: Query) -> ReadDone:
    """Execute the query of a request, unless its connection has no room for a reply any more."""
    try:
        request.reply_bytes_max(LEAST_REPLY_BYTES)
        return ReadDone(request, query, query.read(), None)
    except Exception as problem:
        return ReadDone(request, query, None, problem)


def run_step(commit: Commit, take: Callable[[], None]) -> CommitStepDone:
    """Take a step of a commit."""
    try:
        take()
    except Exception as problem:
        return CommitStepDone(commit, problem)
    return CommitStepDone(commit, None)
