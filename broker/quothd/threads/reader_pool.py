"""The reader threads: sealed segments are looked at here, so that a cold disk never holds up a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

from quothd.requests.pending_request import PendingRequest
from quothlog.reading.read_request import ReadRequest

READERS = 2


WRITING_S = 0.005
"""A topic is being written to if something came within this time: 200 times a second."""
STEP_BYTES = 2**17
"""What a scan gets at once meanwhile, or `STEP_SHARE` times what was written last, if that is more."""
STEP_SHARE = 8


class Question(Protocol):
    """What is to be looked up in sealed segments."""

    def read(self) -> Any:
        """The answer. In any thread."""


class Looked(NamedTuple):
    """A job whose question has been answered, or the problem."""

    job: PendingRequest
    question: Question
    found: Any
    problem: Exception | None


class Writes:
    """What is being written to a topic, for which scans of its history make way.

    On two cores, with a MiB at a time, publishes at p95 take 2.6 times as long as without a scan, and 1.7
    times with `STEP_BYTES`. A scan loses speed by it, but it always gets a multiple of what is written.
    """

    def __init__(self) -> None:
        self._last = 0.0
        self._bytes = 0

    def note(self, size: int) -> None:
        """So many bytes are written now."""
        self._last, self._bytes = time.monotonic(), size

    def make_way(self, lookup: ReadRequest) -> ReadRequest:
        """The same lookup, in smaller steps if somebody writes."""
        if time.monotonic() - self._last > WRITING_S:
            return lookup
        step = max(STEP_BYTES, STEP_SHARE * self._bytes)
        return lookup._replace(bytes_max=min(lookup.bytes_max, step))


class ReaderPool:
    """A few threads that answer questions and call back with what they found, in their own thread."""

    def __init__(self) -> None:
        self._questions: SimpleQueue[tuple[PendingRequest, Question, Callable[[Looked], None]] | None] = (
            SimpleQueue()
        )
        self._threads = [
            threading.Thread(target=self._run, name=f"quoth-reader-{i}", daemon=True) for i in range(READERS)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, job: PendingRequest, question: Question, back: Callable[[Looked], None]) -> None:
        """Answer a question and call back."""
        self._questions.put((job, question, back))

    def stop(self, until: float) -> None:
        """End after what was submitted; wait for it until the monotonic clock says so."""
        for _ in self._threads:
            self._questions.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while (submitted := self._questions.get()) is not None:
            job, question, back = submitted
            try:
                looked = Looked(job, question, question.read(), None)
            except Exception as problem:
                looked = Looked(job, question, None, problem)
            back(looked)
