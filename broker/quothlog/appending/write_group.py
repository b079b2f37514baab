"""A burst: the batches that reach the log together and the disk in one write."""

from __future__ import annotations

from dataclasses import dataclass

from quothlog.storage.filesystem import Buffer
from quothwire.batch import Header
from quothwire.errors import QuothError


@dataclass(slots=True)
class Appended:
    """Where a batch stands. duplicate: it was stored before, and this is where."""

    first: int
    last: int
    count: int
    duplicate: bool


class WriteGroup:
    """Batches on their way to one write, and the outcomes of all that came with them."""

    __slots__ = ("_places", "bytes", "outcomes", "records", "waiting")

    def __init__(self, outcomes: list[Appended | QuothError]) -> None:
        self.outcomes = outcomes
        self.waiting: list[tuple[Header, bytes, Buffer]] = []
        self.records = 0
        self.bytes = 0
        self._places: list[int] = []

    def add(self, header: Header, stamped: bytes, body: Buffer) -> None:
        """Let a batch wait for the write, its outcome told in advance."""
        self.waiting.append((header, stamped, body))
        self.records += header.records
        self.bytes += header.size
        self._places.append(len(self.outcomes))
        self.outcomes.append(Appended(header.base, header.last, header.records, False))

    def refuse(self, problem: QuothError) -> None:
        """The write failed: so did everything that waited for it."""
        for place in self._places:
            self.outcomes[place] = problem
