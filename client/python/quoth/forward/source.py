"""The source of a forwarding, how far it has come in it, and the interface to its observer."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from quoth.client import Client
from quoth.message import OnGap
from quoth.reader import RECORDS_MAX, StoredReader
from quothwire.batch import Stored
from quothwire.errors import QuothError, error


class ForwardingProgress(NamedTuple):
    """The progress of a forwarding.

    source: the id of the log that is forwarded. producer: the producer id of its batches, the log's own id
    unless the source has lost records that were forwarded. pointer, ordinal: those of the source up to which
    everything is synced in the topic; the ordinal is -1 if it is not known. target, target_log: the pointer
    of the newest forwarded record in the topic, and the id of the topic's log.
    """

    source: int = 0
    producer: int = 0
    pointer: int = 0
    ordinal: int = -1
    target: int = 0
    target_log: int = 0


class ForwarderSource(Protocol):
    """The source of the batches. An error that is not retryable ends the forwarding."""

    @property
    def log_id(self) -> int:
        """The id of the log, 0 until a batch was taken."""

    def seek(self, after: int) -> None:
        """Continue behind a pointer."""

    def wait(self, seconds: float) -> list[Stored]:
        """Return the next batches, none if there is nothing within so many seconds."""


class StoredSource:
    """A cursor in a topic. Damaged batches are left out: the ordinals of the others show the gap.

    records_max: of a fetch, at least one batch. on_gap: called with what is missing.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        after: int = 0,
        *,
        records_max: int = RECORDS_MAX,
        on_gap: OnGap = lambda _: None,
    ) -> None:
        self.topic = topic
        self._client = client
        self._records_max = records_max
        self._reader = StoredReader(topic, after, on_gap)

    @property
    def log_id(self) -> int:
        """The id of the topic's log, 0 until a batch was taken."""
        return self._reader.log_id

    def seek(self, after: int) -> None:
        """Continue behind a pointer."""
        self._reader.resume(after, self.log_id, -1)

    def wait(self, seconds: float) -> list[Stored]:
        """Return the next batches, none if there are none within so many seconds.

        The first one may begin before the cursor. Raises `NotFound`, also if the topic was deleted and
        created again, or `Disconnected`.
        """
        reader, client = self._reader, self._client
        before = reader.after, self.log_id, -1
        while True:
            found = client._run(
                reader.fetch(wait=seconds, timeout=client.timeout, records_max=self._records_max)
            )
            if self.log_id != before[1] and before[1]:
                reader.resume(*before)
                raise error("unknown_topic", f"topic {self.topic!r} was deleted, and made anew")
            taken = [Stored(one.header, one.data) for one in found]
            if taken or not reader.has_more:
                return taken


class LostRecords(NamedTuple):
    """Records that the source does not hold any more, so that they cannot be forwarded."""

    records: int
    after: int
    next: int


class Events(Protocol):
    """The observer of a forwarding."""

    def forwarded(self, records: int, size: int) -> None:
        """Report that more records are synced in the topic."""

    def waits(self, problem: QuothError, seconds: float) -> None:
        """Report a failed attempt; the next one begins after so many seconds."""

    def lost(self, losses: LostRecords) -> None:
        """Report records that the source does not hold any more."""

    def began_anew(self, text: str) -> None:
        """Report an unexpected change, after which the forwarding continues."""
