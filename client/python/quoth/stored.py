"""The stored batches of a topic, as they are: for whoever carries them on."""

from __future__ import annotations

from contextlib import suppress

from quoth.client import Client
from quoth.reader import FETCH_BYTES, WAIT_S_MAX
from quothwire import batch
from quothwire.batch import Stored
from quothwire.errors import QuothError, error
from quothwire.message import Fetched


class StoredReader:
    """A cursor on a topic. What does not check is left out: the ordinals of the others tell.

    log_id: the id of the topic's log, 0 until something was taken.
    """

    def __init__(self, client: Client, topic: str, after: int = 0) -> None:
        self.log_id = 0
        self.topic = topic
        self._client = client
        self.seek(after)

    def seek(self, after: int) -> None:
        """Go on behind a pointer."""
        self._after = after

    def take(self, wait: float) -> list[Stored]:
        """The next batches, the first of which may begin before the cursor; none if there are none within so
        many seconds. Raises `NotFound`, also if the topic was deleted and made anew, or `Disconnected`."""
        while True:
            answer = self._client._fetch_stored(self.topic, self._after, min(wait, WAIT_S_MAX), FETCH_BYTES)
            reply = answer.reply
            assert isinstance(reply, Fetched)
            if self.log_id not in (0, reply.log):
                raise error("unknown_topic", f"topic {self.topic!r} was deleted, and made anew")
            self.log_id = reply.log
            if not answer.payload:
                return []
            found = self._sound(memoryview(answer.payload))
            self._after = max(self._after, found[-1].header.last if found else reply.next)
            if found:
                return found

    def _sound(self, payload: memoryview) -> list[Stored]:
        found = []
        with suppress(QuothError):
            while payload:
                header = batch.parse_header(payload, self.log_id)
                with suppress(QuothError):
                    batch.check(payload[: header.size], self.log_id)
                    found.append(Stored(header, payload[: header.size]))
                payload = payload[header.size :]
        return found
