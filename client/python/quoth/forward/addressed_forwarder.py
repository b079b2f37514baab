"""Forwarding of records that have addresses, such as those of queuefka's slabs, each exactly once.

The batches have a random producer id, which is saved before the first one is sent, and the address of
their first record + 1 as a sequence. Such sequences have holes, so the broker cannot notice that a batch is
missing: one batch is in flight, and after every failure the topic itself shows where to go on. The loss of
the connection is a failure, too: a topic can be restored to an earlier state while its broker is down. If the
newest forwarded record is missing and was not trimmed, all of the topic is read, and what it has lost is sent
again. A batch is not sent again as it was, since the source may have grown meanwhile. If the first copy
arrives late all the same, its sequence is not above the newest one, so that the broker stores one of the two.

    resolve: which is the topic's last batch?  -->  an attempt: one batch after the other, until one fails
        ^                                                                       |
        +-----------------------------------------------------------------------+

Everything is acknowledged as synced. Without the saved `AddressProgress` nothing shows which records of a
topic came from a source: all of them are sent again, under another producer id.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import accumulate

from quoth.client import Client
from quoth.connection.channel import Channel
from quoth.core import calls
from quoth.core.adaptive_timeout import AdaptiveTimeout
from quoth.core.idempotence import new_producer_id
from quoth.core.options import deadline_in
from quoth.core.request_state import ClientCall, RequestState
from quoth.forward.addressed import AddressedEvents, AddressedRun, AddressedSource, AddressProgress
from quoth.forward.outages import forward_through_outages
from quoth.forward.source import StoredSource
from quoth.forward.window import BURST_S
from quoth.message import Gap
from quothwire import batch
from quothwire.batch import BATCH_RECORDS_MAX, HEADER_BYTES, Flag, Stored
from quothwire.errors import NotFound, QuothError, error
from quothwire.protocol.messages import Publish, Published, TopicInfo
from quothwire.record import RECORD_BYTES
from quothwire.topic import check_topic

BATCH_BYTES = 2**20
"""Bytes of the records in a batch, unless a single one is larger."""
IDLE_S = 0.5
"""Seconds for which the source waits for new records at a time."""
SAVE_S = 0.2
"""Seconds between two saves of the progress while batches are acknowledged."""
_BATCH_OVERHEAD = 128
_LOST_TRACK = frozenset(("out_of_sequence", "sequence_reused", "forgotten_sequence"))
"""The error codes of a broker whose topic holds more of this producer than the forwarder knows."""


class AddressedForwarder:
    """Forwards a source with addresses to a topic. Belongs to one thread.

    progress: that of an earlier forwarding of this source to this topic, None for a new one. save: stores the
    progress durably. rate: bytes a second, 0 for no limit. pause: sleeps for so many seconds.
    """

    def __init__(
        self,
        source: AddressedSource,
        client: Client,
        topic: str,
        *,
        progress: AddressProgress | None,
        save: Callable[[AddressProgress], None],
        events: AddressedEvents,
        rate: float = 0.0,
        timeout: AdaptiveTimeout | None = None,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.topic = check_topic(topic)
        self.progress = progress or AddressProgress()
        self._source = source
        self._client = client
        self._save = save
        self._events = events
        self._rate = rate
        self._timeout = timeout or AdaptiveTimeout()
        self._pause = pause
        self._channel: Channel
        """The connection for the batches of an attempt."""
        self._begins = False
        """True if the broker does not know the producer, as far as is known."""
        self._contradictions = 0
        """Refused batches in a row that the topic seemed to hold and did not show."""
        self._saved: AddressProgress | None = None
        self._saved_at = self._free_at = -math.inf
        self._progressed = False

    def run(self, *, until_end: bool = False) -> None:
        """Forward for ever, through everything that may pass; until_end: until the source has nothing more.

        Raises an error that does not pass by itself. The progress is saved in every case.
        """
        if not self.progress.producer:
            self.progress = self.progress._replace(producer=new_producer_id())
            self._begins = True
        self._save_progress(now=True)
        forward_through_outages(
            lambda: self._resolve_and_send(until_end=until_end),
            lambda: self._progressed,
            self._events,
            self._pause,
        )

    def _resolve_and_send(self, *, until_end: bool) -> None:
        self._progressed = False
        try:
            self._client.hello()  # waits for the broker
            with closing(self._client._requests(once=True)) as self._channel:
                self._resolve()
                self._source.seek(self.progress.address)
                while (found := self._source.wait(0.0 if until_end else IDLE_S)) or not until_end:
                    for run in found:
                        self._forward(run)
                    self._save_progress(now=not found)
        finally:
            self._save_progress(now=True)

    # -- what the topic holds ---------------------------------------------------------------------------

    def _resolve(self) -> None:
        """Find out where to continue.

        The answer holds as long as the connection for the batches, which is not made again: another broker,
        with a topic that was restored meanwhile, would accept the next batch.
        """
        self._channel.run(calls.hello(self._client))
        info = self._described()
        here = info.log if info is not None else 0
        if self.progress.target_log not in (0, here):
            self._events.began_anew(f"topic {self.topic!r} was deleted; what it held is not sent again")
            self.progress = self.progress._replace(target=0)
            self._begins = True
        self.progress = self.progress._replace(target_log=here)
        if info is None:
            self._begins = True
            return
        if self.progress.target and self._has_lost_target():
            self._events.began_anew(f"topic {self.topic!r} is not as it was; all of it is looked through")
            self.progress = self.progress._replace(target=0, address=0)
        self._read_topic()

    def _described(self) -> TopicInfo | None:
        """Return the description of the topic, None if there is none."""
        try:
            return self._client.topic(self.topic)
        except NotFound:
            return None

    def _has_lost_target(self) -> bool:
        """Return True if the newest forwarded record is not there and was not trimmed.

        The topic's newest pointer does not show it: others may have published since the topic was restored.
        A batch that is damaged was stored once, and is not sent again.
        """
        target, gaps = self.progress.target, list[Gap]()
        reader = StoredSource(self._client, self.topic, target - 1, records_max=1, on_gap=gaps.append)
        try:
            found = reader.wait(0.0)  # which opens the topic: only then its end is certain
        except NotFound:  # it was deleted just now, which the broker's next answer shows
            return False
        if any(_is_of(one, self.progress.producer, target) for one in found):
            return False
        if any(gap.reason == "damaged" and gap.after < target < gap.next for gap in gaps):
            return False
        info = self._described()
        if info is None:
            return False
        is_trimmed = info.first > target if info.count else info.first_ordinal > 0
        return not is_trimmed or any(gap.reason == "ahead" for gap in gaps)

    def _read_topic(self) -> None:
        """Move the progress behind the last batch of this producer in the topic."""
        reader = StoredSource(self._client, self.topic, self.progress.target)
        last: Stored | None = None
        with suppress(NotFound):  # it was deleted just now, which the broker's next answer shows
            while found := reader.wait(0.0):
                own = [one for one in found if one.header.producer == self.progress.producer]
                last = own[-1] if own else last
        if last is None or last.header.last <= self.progress.target:
            return
        self._client.roll(self.topic)  # it syncs the records that the topic shows already
        self._begins, self._contradictions = False, 0
        values = batch.offsets_of(last.header, last.data[HEADER_BYTES:])[0]
        end = last.header.sequence - 1 + last.header.records * self._source.overhead + values[-1]
        address = max(end, self.progress.address)
        self.progress = self.progress._replace(address=address, target=last.header.last)

    # -- an attempt -------------------------------------------------------------------------------------

    def _forward(self, run: AddressedRun) -> None:
        """Send the values of a run, or report a gap."""
        if not run.values:
            self._events.missed(run)
            self.progress = self.progress._replace(address=run.next)
            return
        first = 0
        while first < len(run.values):
            count = self._count_of(run.values[first : first + BATCH_RECORDS_MAX])
            self._send(run.values[first : first + count])
            first += count
            self._save_progress(now=False)

    def _count_of(self, values: list[bytes]) -> int:
        """Return how many of some values make the next batch."""
        room = min(BATCH_BYTES, self._client._payload_bytes_max - _BATCH_OVERHEAD)
        sizes = accumulate(RECORD_BYTES + len(value) for value in values)
        return max(1, sum(size <= room for size in sizes))

    def _send(self, values: list[bytes]) -> None:
        """Send the batch that begins at the progress. Raises any error; the topic shows the outcome then."""
        before = self.progress
        flags = Flag.SPARSE | (Flag.START if self._begins else 0)
        payload = batch.encode(values, producer=before.producer, sequence=before.address + 1, flags=flags)
        if len(payload) > self._client._payload_bytes_max:
            text = (
                f"a record of {len(values[0])} bytes; batches have at most {self._client._payload_bytes_max}"
            )
            raise error("too_large", text, "all before it has arrived; raise frame_bytes_max of that broker")
        self._keep_rate(len(payload))
        began = time.monotonic()
        try:
            self._check_connection()
            reply = self._channel.run(_publish(self.topic, payload, self._timeout.seconds))
        except QuothError as problem:
            raise self._judged(problem) from problem
        self._timeout.acknowledged(time.monotonic() - began)
        self._begins, self._progressed, self._contradictions = False, True, 0
        end = before.address + sum(map(len, values)) + self._source.overhead * len(values)
        self.progress = before._replace(address=end, target=reply.last, target_log=reply.log)
        self._events.forwarded(len(values), len(payload))

    def _check_connection(self) -> None:
        """Raise `Disconnected` if the connection is lost, instead of after the timeout of a batch."""
        link = self._channel.link
        link.read_events()
        if not link.connected:
            raise link.no_answer(f"forwarding to {self.topic}")

    def _judged(self, problem: QuothError) -> QuothError:
        """Return the error that ends the attempt, retryable if another one may succeed."""
        if problem.code == "timed_out":
            self._timeout.expired()
        if problem.code == "unknown_producer":
            self._begins = True
        elif problem.code not in _LOST_TRACK:
            return problem
        else:
            self._look_further(problem)
        text = f"the broker lost track of it: {problem.text}"
        return error("out_of_sequence", text, "what the topic holds will tell where to go on")

    def _look_further(self, problem: QuothError) -> None:
        """Read the topic from its beginning the next time, if the end of it did not help."""
        self._contradictions += 1
        if self._contradictions == 2 and self.progress.target:
            self._events.began_anew(f"topic {self.topic!r} is not as it was; all of it is looked through")
            self.progress = self.progress._replace(target=0)
        elif self._contradictions > 2:
            text = f"topic {self.topic!r} held records of this source, and does not tell any more which"
            raise error(
                "forgotten_sequence", text, "go on with the state of before, or with another topic"
            ) from problem

    def _keep_rate(self, size: int) -> None:
        """Wait until a batch may be sent within the rate."""
        if self._rate:
            now = time.monotonic()
            if now < self._free_at:
                self._pause(self._free_at - now)
            self._free_at = max(self._free_at, now - BURST_S) + size / self._rate

    def _save_progress(self, *, now: bool) -> None:
        """Save the progress, now or after `SAVE_S`."""
        time_now = time.monotonic()
        if self.progress != self._saved and (now or time_now - self._saved_at >= SAVE_S):
            self._save(self.progress)
            self._saved, self._saved_at = self.progress, time_now


def _publish(topic: str, payload: bytes, timeout: float) -> ClientCall[Published]:
    """Publish an encoded batch. Raises the error that answers it, or `Disconnected`."""
    reply = (yield RequestState(Publish("synced"), topic, payload, deadline=deadline_in(timeout))).reply
    assert isinstance(reply, Published)
    return reply


def _is_of(one: Stored, producer: int, pointer: int) -> bool:
    """Return True if a batch is of a producer and holds a pointer."""
    return one.header.producer == producer and one.header.base <= pointer <= one.header.last
