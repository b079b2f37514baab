"""Serves the requests of Poe's clients by calls of a client of the broker."""

from __future__ import annotations

from quoth.aio import Client
from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.message import Gap
from quoth.reader import RecordReader
from quothd.gateways.poe.protocol import PoePut, PoeRead, PoeRecords, encode_stored
from quothd.gateways.poe.rare_report import RareReport
from quothwire.errors import NotFound
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import Fetch, Fetched


class PoeTopics:
    """The topics of a broker, as clients of Poe see them. Belongs to the loop of its client.

    All its calls raise `QuothError`.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._damage = RareReport("poe_damaged")

    @property
    def has_ended(self) -> bool:
        """True if the client of the broker has ended, so that every further call would fail."""
        return self._client._io_thread.is_stopping

    async def put(self, request: PoePut) -> bytes:
        """Store values and return the bytes of the answer.

        Nothing was stored if it raises, unless the error is a `Disconnected` or a `BrokerFailure`.
        """
        ack = await self._client.publish(request.topic, request.values)
        return encode_stored(ack.last)

    async def newest(self, topic: str) -> int:
        """Return the newest pointer of a topic, 0 if there is no such topic.

        The broker opens the topic for it, which may take long; the answer is small.
        """
        if not topic:
            return 0
        try:
            return await self._client._run(_find_newest(topic, self._client.timeout))
        except NotFound:
            return 0

    async def read(self, request: PoeRead, newest: int) -> bytes:
        """Return the bytes of the answer to a read. newest: of the topic, as it was a moment ago."""
        records = PoeRecords(request.limit)
        reader = RecordReader(request.topic, request.after, self._report_gap)
        while reader.after < newest and reader.has_more and not records.is_full:
            fetch = reader.fetch(timeout=self._client.timeout, records_max=records.left)
            try:
                found = await self._client._run(fetch)
            except NotFound:  # deleted meanwhile
                break
            for batch in found:
                records.add(batch.first, batch.values)
        return records.encode()

    def _report_gap(self, gap: Gap) -> None:
        """Log damage. Records that retention has removed are passed over in silence, as Poe does."""
        if gap.reason == "damaged":
            self._damage.put(topic=gap.topic, after=gap.after, next=gap.next)


def _find_newest(topic: str, timeout: float) -> ClientCall[int]:
    request = RequestState(Fetch(POINTER_MAX), topic)
    request.deadline = deadline_in(timeout)
    answer = yield request
    assert isinstance(answer.reply, Fetched)
    return answer.reply.newest
