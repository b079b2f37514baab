"""Forwarding: carrying the stored batches of a log to a topic of a broker, each record exactly once.

The batches go as they are, under a producer id of their log, numbered by their ordinals. So the broker takes
them in order and recognises a retry, and what it holds tells how far the forwarding is: after anything that
leaves that open, a crash of whoever forwards, of the source or of the broker, or a long silence, the topic is
asked which of these batches it holds, and the next one is sent. A `ForwardingProgress` that is saved now and
then makes
that quick, and tells the source what it may let go of. One that turns out to be wrong is done without.

    resolve: what does the topic hold?  -->  a leg: batches on their way, in order, until something goes wrong
        ^                                                                       |
        +-----------------------------------------------------------------------+

Everything is acknowledged as synced, so that neither side's loss of power takes anything.

An old source may hold batches that a broker does not take as new ones, such as with headers that are no map.
Once the broker has refused one, such batches go on without what it refuses: no value and no key is held back.
"""

from __future__ import annotations

import math
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from xxhash import xxh3_64_intdigest

from quoth.client import Client
from quoth.connection.connection import Link
from quoth.connection.send_loop import BatchSupply, SendLoop
from quoth.core.adaptive_timeout import PAUSE_S, AdaptiveTimeout, next_pause
from quoth.core.inflight import Inflight
from quoth.core.outgoing import Failure, OutgoingBatch
from quoth.forward.stored import StoredSource
from quoth.message import Ack
from quothwire import batch
from quothwire.batch import Bytes, Flag, Header, Stored
from quothwire.errors import BrokerFailure, NotFound, QuothError, error
from quothwire.ingest import check_new, repaired
from quothwire.protocol.messages import Publish
from quothwire.topic import check_topic

SAVE_S = 0.2
"""How often the standing is saved while batches are acknowledged."""
AHEAD_BYTES = 8 * 2**20
"""What is read from the source before it can be sent."""
GONE_S = 5.0
"""What could leave and does not: nobody is there to take it."""
IDLE_S = 0.5
"""How long a source is asked to wait for something new, before the broker is looked at again."""
BURST_S = 0.1
"""A bandwidth is kept on the average of such a time."""
KNOWN_MAX = 10_000
"""Batches of the topic, newest last, that those of the source are compared with: more than are acknowledged
between two saves."""
_LOST_TRACK = frozenset(("unknown_producer", "out_of_sequence", "sequence_reused", "forgotten_sequence"))
"""What a broker says whose topic is not where the forwarder thinks that it is."""


class ForwardingProgress(NamedTuple):
    """How far a forwarding is.

    source: the id of the log that is forwarded. producer: under which id, the log's own unless the source has
    lost what it had shown. pointer, ordinal: those of the source up to which everything is synced in the
    topic, -1 for an ordinal that is not known. target, target_log: the newest pointer there that is ours, and
    in which log.
    """

    source: int = 0
    producer: int = 0
    pointer: int = 0
    ordinal: int = -1
    target: int = 0
    target_log: int = 0


class ForwarderSource(Protocol):
    """Where the batches come from. Errors of its own end the forwarding, those that may pass let it wait."""

    @property
    def log_id(self) -> int:
        """The id of the log, 0 until something was taken."""

    def seek(self, after: int) -> None:
        """Go on behind a pointer."""

    def take(self, wait: float) -> list[Stored]:
        """The next batches, none if there is nothing within so many seconds."""


class LostRecords(NamedTuple):
    """Records that the source does not hold any more, so that nobody can forward them."""

    records: int
    after: int
    next: int


class Events(Protocol):
    """What is told to whoever watches."""

    def forwarded(self, records: int, size: int) -> None:
        """So many more are synced in the topic."""

    def waits(self, problem: QuothError, seconds: float) -> None:
        """It goes on after so many seconds."""

    def lost(self, losses: LostRecords) -> None:
        """The source does not hold some records any more."""

    def began_anew(self, text: str) -> None:
        """Something is not what it was: it goes on all the same."""


class _Known(NamedTuple):
    """A batch of ours that the topic holds. last: the pointer of its last record there."""

    records: int
    fingerprint: int
    last: int


@dataclass(eq=False, kw_only=True)
class _ForwardedBatch(OutgoingBatch):
    """A batch of the source. begins: the broker takes it whatever came before. acknowledged: the newest
    pointer that it got."""

    header: Header
    begins: bool
    acknowledged: int = 0


class Forwarder:
    """Forwards a source to a topic. Belongs to one thread.

    standing: where an earlier forwarding of this source to this topic was, None if there was none or nothing
    is known of it: then all of the topic is looked through. save: keeps a standing. rate: bytes a second, 0
    for no bound.
    """

    def __init__(
        self,
        source: ForwarderSource,
        client: Client,
        topic: str,
        *,
        standing: ForwardingProgress | None,
        save: Callable[[ForwardingProgress], None],
        events: Events,
        rate: float = 0.0,
    ) -> None:
        self.topic = check_topic(topic)
        self.standing = standing or ForwardingProgress()
        self._source = source
        self._client = client
        self._save = save
        self._events = events
        self._rate = rate
        self._known: OrderedDict[int, _Known] = OrderedDict()
        self._compared_from = 0
        """Batches of ours up to this sequence are in the topic, whatever they hold."""
        self._gone: list[tuple[int, int]] = []
        """Ordinals, from and before, of ours that the topic held: trimmed there since, or damaged."""
        self._target_log = 0
        self._expected = -1
        """The ordinal that the next batch should have, -1 if that is not known."""
        self._unknown = False
        """Does the broker know this producer no more?"""
        self._ready: deque[_ForwardedBatch] = deque()
        self._ready_bytes = 0
        self._sent: deque[_ForwardedBatch] = deque()
        self._problem: QuothError | None = None
        self._repairs = False
        """Are batches sent without what the broker refuses in a new one?"""
        self._saved = self.standing
        self._saved_at = -math.inf
        self._free_at = -math.inf
        self._progressed = False
        self._patience = AdaptiveTimeout()

    def run(self, *, until_end: bool = False) -> None:
        """Forward, through everything that may pass, for ever; until_end: until the source has nothing more.

        Raises what will not pass by itself. The standing is saved however it ends.
        """
        pause = PAUSE_S
        while True:
            before = self._repairs
            try:
                self._progressed = False
                self._resolve()
                self._leg(until_end=until_end)
                return
            except QuothError as problem:
                if self._repairs and not before:  # what it refuses can be left out
                    continue
                if not problem.retryable and not isinstance(problem, BrokerFailure):  # a restart may end it
                    raise
                pause = PAUSE_S if self._progressed else next_pause(problem, pause)
                seconds = pause * random.uniform(0.5, 1.0)
                self._events.waits(problem, seconds)
                time.sleep(seconds)

    # -- what the topic holds ---------------------------------------------------------------------------

    def _resolve(self) -> None:
        """Find out where to go on."""
        self._client.hello()
        self._source.seek(self.standing.pointer)
        self._expected = self.standing.ordinal
        self._compared_from = 0
        self._known.clear()
        self._gone.clear()
        try:
            info = self._client.topic(self.topic)
        except NotFound:
            info = None
        self._target_log = here = info.log if info is not None else 0
        if self.standing.target_log not in (0, here):
            self._events.began_anew(f"topic {self.topic!r} was deleted; what it held is not sent again")
            self.standing = self.standing._replace(target=0, target_log=here)
            self._unknown = True
        if info is None or (not self.standing.producer and not self._learn_source()):
            return
        self.standing = self.standing._replace(target_log=here)
        self._look_through()

    def _look_through(self) -> None:
        """Find the batches of this producer in the topic, behind those that are known to be there."""
        reader = StoredSource(self._client, self.topic, self.standing.target)
        with suppress(NotFound):  # it was deleted just now, which the broker's next answer tells
            while found := reader.take(0.0):
                for one in found:
                    if one.header.producer == self.standing.producer:
                        self._recognise(one)
            if self._known:
                self._client.roll(self.topic)  # it shows what may not be synced yet; what is sealed is

    def _learn_source(self) -> bool:
        """Which log is it? False as long as it holds nothing."""
        found = self._source.take(0.0)
        self._source.seek(self.standing.pointer)
        if found:
            self.standing = self.standing._replace(source=self._source.log_id, producer=self._source.log_id)
        return bool(found)

    def _recognise(self, one: Stored) -> None:
        """A batch of ours, in the topic."""
        header = one.header
        ordinal = header.sequence - 1
        if self._expected < ordinal:  # a broker takes no holes, so there was something once
            self._gone.append((max(0, self._expected), ordinal))
        self._known[header.sequence] = _Known(header.records, _fingerprint(one.data), header.last)
        if len(self._known) > KNOWN_MAX:
            self._compared_from, _ = self._known.popitem(last=False)
        self._expected = ordinal + header.records

    # -- a leg ------------------------------------------------------------------------------------------

    def _leg(self, *, until_end: bool) -> None:
        """Send one batch after the other until something goes wrong, or the end is reached."""
        self._problem = None
        self._ready.clear()
        self._sent.clear()
        self._ready_bytes = 0
        patience = self._patience.seconds
        link = self._client._link(patience)
        pipeline: Inflight[_ForwardedBatch] = Inflight(
            self.topic, Publish("synced"), self._settle, renumbers=False
        )
        supply = BatchSupply(self._take, self._leaves_at, self._began)
        delivery = SendLoop(link, pipeline, supply, patience, resends=False)
        lingering = 0.0 if until_end else IDLE_S
        moved_at = time.monotonic()
        try:
            while self._problem is None:
                idle = not self._ready and not self._sent
                if idle:
                    link.wait(0.0)  # a connection that is known can be watched while the source is waited for
                if not self._read_ahead(lingering if idle else 0.0) and idle and until_end:
                    return
                if self._ready or self._sent:
                    delivery.turn()
                self._check_link(link)
                if self._sent or not self._ready or moved_at < self._free_at:
                    moved_at = time.monotonic()
                elif time.monotonic() - moved_at > GONE_S:
                    raise link.nobody(f"forwarding to {self.topic}")
                self._keep(now=not self._sent)
            if not self._progressed:  # at most once an outage: without a broker no leg begins
                self._patience.expired()
            raise self._problem
        finally:
            link.close()
            self._keep(now=True)

    def _check_link(self, link: Link) -> None:
        """What begins is not sent twice: the broker may have forgotten it since a link was lost."""
        if link.reconnects and any(one.begins for one in self._sent):
            raise link.nobody(f"forwarding to {self.topic}")

    def _read_ahead(self, wait: float) -> bool:
        """Have some batches ready; False if there is nothing more."""
        if self._ready_bytes >= AHEAD_BYTES:
            return True
        found = self._source.take(wait)
        for one in found:
            self._prepare(one)
        return bool(found)

    def _prepare(self, one: Stored) -> None:
        """Let a batch of the source be sent, unless the topic holds it."""
        header = one.header
        self._check_source()
        if self._has_arrived(one):
            self._pass_over(header)
            return
        if header.ordinal < self._expected:
            self._begin_producer(header)
            self._prepare(one)
            return
        begins = self._unknown or self._expected < 0
        if 0 <= self._expected < header.ordinal:
            self._events.lost(
                LostRecords(header.ordinal - self._expected, self.standing.pointer, header.base)
            )
            begins = True
        flags = Flag.ORDINAL | (Flag.START if begins else 0)
        data = self._repaired(one) if self._repairs else one.data
        columns = batch.parse_header(data, 0) if data is not one.data else header
        payload = batch.claimed(data, columns, self.standing.producer, header.ordinal + 1, int(flags))
        self._unknown = False
        self._expected = header.end_ordinal
        self._ready.append(_ForwardedBatch(header=header, payload=payload, began=math.inf, begins=begins))
        self._ready_bytes += len(payload)

    def _repaired(self, one: Stored) -> Bytes:
        """A batch as the broker takes it, and tells what that leaves out."""
        try:
            check_new(batch.parse(one.data, self._source.log_id))
        except QuothError:
            data, wrong = repaired(one.data, self._source.log_id)
            if wrong:
                records = f"{len(wrong)} records from pointer {one.header.base + wrong[0]} on"
                self._events.began_anew(f"{records} had headers that cannot be decoded: sent without them")
            return data
        return one.data

    def _has_arrived(self, one: Stored) -> bool:
        """Does the topic hold it, or did it once?"""
        header = one.header
        if header.end_ordinal > self._expected:
            return False
        known = self._known.get(header.ordinal + 1)
        if known is not None and known.records == header.records and self._is_same(one, known.fingerprint):
            return True
        gone = any(first <= header.ordinal and header.end_ordinal <= end for first, end in self._gone)
        return gone or header.ordinal < self._compared_from

    def _is_same(self, one: Stored, fingerprint: int) -> bool:
        """Has a batch this fingerprint, as it is or repaired?"""
        if _fingerprint(one.data) == fingerprint:
            return True
        return _fingerprint(memoryview(repaired(one.data, self._source.log_id)[0])) == fingerprint

    def _check_source(self) -> None:
        """Raises ``damaged`` if it is another log than before, ``bad_request`` if it is the topic's own."""
        log_id = self._source.log_id
        if log_id == self._target_log:
            raise error("bad_request", f"topic {self.topic!r} is the source itself", "name another topic")
        if not self.standing.source:
            self.standing = self.standing._replace(source=log_id, producer=self.standing.producer or log_id)
            if self._target_log:
                self._look_through()
        elif self.standing.source != log_id:
            text = f"the source is another log now, {log_id:016x} instead of {self.standing.source:016x}"
            raise error("damaged", text, "forward it anew, without the standing of the old one")

    def _pass_over(self, header: Header) -> None:
        """It is in the topic, and so is all before it."""
        known = self._known.get(header.ordinal + 1)
        target = known.last if known is not None else self.standing.target
        self.standing = self.standing._replace(pointer=header.last, ordinal=header.end_ordinal, target=target)

    def _begin_producer(self, header: Header) -> None:
        """The source has lost what it had shown, as by a loss of power, and gives its ordinals to others.

        They go under an id that follows from the first of them, so that the topic tells of them later, too.
        """
        self._events.began_anew(
            f"the source has lost records up to ordinal {self._expected}, sent all the same"
        )
        self._known.clear()
        self._gone.clear()
        self._compared_from = 0
        producer = xxh3_64_intdigest(b"%d %d" % (header.base, self.standing.producer)) or 1
        self.standing = self.standing._replace(producer=producer, ordinal=header.ordinal)
        self._expected = header.ordinal
        self._unknown = True
        self._keep(now=True)
        self._look_through()

    # -- the supply of the delivery ---------------------------------------------------------------------

    def _take(self, now: float, may_leave: Callable[[_ForwardedBatch], bool]) -> _ForwardedBatch | None:
        if not self._ready or now < self._free_at or self._is_held() or not may_leave(self._ready[0]):
            return None
        if self._is_too_large(self._ready[0]):
            size, most = len(self._ready[0].payload), self._client._payload_bytes_max
            hint = "all before it has arrived; raise frame_bytes_max of that broker"
            raise error("too_large", f"a batch of {size} bytes, at most {most}", hint)
        parcel = self._ready.popleft()
        parcel.began = now
        self._ready_bytes -= len(parcel.payload)
        if self._rate:
            self._free_at = max(self._free_at, now - BURST_S) + len(parcel.payload) / self._rate
        self._sent.append(parcel)
        return parcel

    def _is_held(self) -> bool:
        """Has the next one to wait for what is on its way? What begins could overtake it there."""
        if not self._sent:
            return False
        head = self._ready[0]
        size = sum(len(one.payload) for one in self._sent) + len(head.payload)
        return head.begins or self._is_too_large(head) or size > self._patience.window

    def _is_too_large(self, parcel: _ForwardedBatch) -> bool:
        return len(parcel.payload) > self._client._payload_bytes_max

    def _leaves_at(self) -> float:
        return self._free_at if self._ready and not self._is_held() else math.inf

    def _began(self) -> float:
        return math.inf

    # -- what became of it ------------------------------------------------------------------------------

    def _settle(self, parcel: _ForwardedBatch, outcome: Ack | Failure) -> None:
        if isinstance(outcome, Failure):
            self._problem = self._problem or self._judge(parcel, outcome.error)
            return
        parcel.acknowledged = outcome.last
        if parcel.copies == 1:  # else it is not known which copy is meant
            self._patience.acknowledged(time.monotonic() - parcel.began)
        while self._sent and self._sent[0].acknowledged:
            done = self._sent.popleft()
            header = done.header
            self._progressed = True
            self.standing = self.standing._replace(
                pointer=header.last, ordinal=header.end_ordinal, target=done.acknowledged
            )
            self._events.forwarded(header.records, len(done.payload))

    def _judge(self, parcel: _ForwardedBatch, problem: QuothError) -> QuothError:
        """What ends a leg, as an error that tells whether another one may succeed."""
        if problem.code == "bad_batch":
            self._repairs = True
            header = parcel.header
            text = f"the {header.records} records from pointer {header.base} on: {problem.text}"
            return error("bad_batch", text, "all before them has arrived")
        if problem.code not in _LOST_TRACK:
            return problem
        self._unknown = problem.code == "unknown_producer"
        if not self._unknown and not self._progressed:
            if self.standing.target:
                self._events.began_anew(f"topic {self.topic!r} is not as it was; all of it is looked through")
                self.standing = ForwardingProgress(self.standing.source, self.standing.producer)
            elif problem.code == "forgotten_sequence":
                text = f"topic {self.topic!r} held records of this source, and does not tell any more which"
                return error(problem.code, text, "go on with the state of before, or with another topic")
        text = f"the broker lost track of it: {problem.text}"
        return error("out_of_sequence", text, "what the topic holds will tell where to go on")

    def _keep(self, *, now: bool) -> None:
        """Save the standing, now or when its time has come."""
        if self.standing == self._saved:
            return
        moment = time.monotonic()
        if now or moment - self._saved_at >= SAVE_S:
            if not self.standing.target_log:
                with suppress(QuothError):  # it is asked again the next time
                    self.standing = self.standing._replace(target_log=self._client.topic(self.topic).log)
            self._save(self.standing)
            self._saved, self._saved_at = self.standing, moment


def _fingerprint(data: memoryview) -> int:
    """Of a batch's records, whoever sent them on."""
    return xxh3_64_intdigest(data[batch.HEADER_BYTES :])
