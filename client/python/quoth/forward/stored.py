"""The stored batches of a topic, as they are: for whoever carries them on."""

from __future__ import annotations

from quoth.client import Client
from quoth.message import Gap
from quoth.reader import StoredReader
from quothwire.batch import Stored
from quothwire.errors import error


class StoredSource:
    """A cursor on a topic. What does not check is left out: the ordinals of the others tell."""

    def __init__(self, client: Client, topic: str, after: int = 0) -> None:
        self.topic = topic
        self._client = client
        self._reader = StoredReader(topic, after, _ignore)

    @property
    def log_id(self) -> int:
        """The id of the topic's log, 0 until something was taken."""
        return self._reader.log_id

    def seek(self, after: int) -> None:
        """Go on behind a pointer."""
        self._reader.resume(after, self.log_id, -1)

    def take(self, wait: float) -> list[Stored]:
        """The next batches, the first of which may begin before the cursor; none if there are none within so
        many seconds. Raises `NotFound`, also if the topic was deleted and made anew, or `Disconnected`."""
        reader, client = self._reader, self._client
        before = reader.after, self.log_id, -1
        while True:
            found = client._run(reader.fetch(wait=wait, timeout=client.timeout))
            if self.log_id != before[1] and before[1]:
                reader.resume(*before)
                raise error("unknown_topic", f"topic {self.topic!r} was deleted, and made anew")
            taken = [Stored(one.header, one.data) for one in found]
            if taken or not reader.looking:
                return taken


def _ignore(_: Gap) -> None:
    pass
