"""The stored batches of a topic, as a source of a forwarding."""

from __future__ import annotations

from quoth.client import Client
from quoth.message import Gap
from quoth.reader import StoredReader
from quothwire.batch import Stored
from quothwire.errors import error


class StoredSource:
    """A cursor in a topic. Damaged batches are left out: the ordinals of the others show the gap."""

    def __init__(self, client: Client, topic: str, after: int = 0) -> None:
        self.topic = topic
        self._client = client
        self._reader = StoredReader(topic, after, _ignore)

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
            found = client._run(reader.fetch(wait=seconds, timeout=client.timeout))
            if self.log_id != before[1] and before[1]:
                reader.resume(*before)
                raise error("unknown_topic", f"topic {self.topic!r} was deleted, and made anew")
            taken = [Stored(one.header, one.data) for one in found]
            if taken or not reader.has_more:
                return taken


def _ignore(_: Gap) -> None:
    pass
