"""Forwarding: carries the stored batches of a log to a topic of a broker, each record exactly once.

The batches are sent as they are stored, under a producer id of their log, numbered by their ordinals. So the
broker takes them in order and recognises a retry, and the topic itself shows how far the forwarding is. After
a crash of the forwarder, of the source or of the broker, or a long silence, the forwarder reads which batches
the topic holds, and sends the next one. The `ForwardingProgress`, saved now and then, makes that quick, and
says what the source may trim. If it turns out to be wrong, the whole topic is read.

    resolve: what does the topic hold?  -->  an attempt: batches in flight, in order, until something fails
        ^                                                                       |
        +-----------------------------------------------------------------------+

Everything is acknowledged as synced, so a loss of power on either side loses nothing.

An old source may hold batches that a broker does not take as new ones, such as with headers that are no map.
Once the broker has refused one, such batches are sent without what it refuses: every value and every key is
kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress

from xxhash import xxh3_64_intdigest

from quoth.client import Client
from quoth.connection.connection import Link
from quoth.connection.send_loop import BatchSupply, SendLoop
from quoth.core.adaptive_timeout import AdaptiveTimeout
from quoth.core.inflight import Inflight
from quoth.core.outgoing import Failure
from quoth.forward.outages import forward_through_outages
from quoth.forward.source import Events, ForwarderSource, ForwardingProgress, LostRecords, StoredSource
from quoth.forward.target import ForwardedBatches
from quoth.forward.window import ForwardedBatch, ForwardWindow
from quoth.message import Ack
from quothwire import batch
from quothwire.batch import Bytes, Flag, Header, Stored
from quothwire.errors import NotFound, QuothError, error
from quothwire.ingest import check_new, repaired
from quothwire.protocol.messages import Publish
from quothwire.topic import check_topic

SAVE_S = 0.2
"""Seconds between two saves of the progress while batches are acknowledged."""
GONE_S = 5.0
"""Seconds after which a batch that may be sent and is not shows that no broker is there."""
IDLE_S = 0.5
"""Seconds for which a source waits for new batches, before the connection is checked again."""
_LOST_TRACK = frozenset(("unknown_producer", "out_of_sequence", "sequence_reused", "forgotten_sequence"))
"""The error codes of a broker whose topic does not hold what the forwarder expects."""


class Forwarder:
    """Forwards a source to a topic. Belongs to one thread.

    progress: that of an earlier forwarding of this source to this topic, None if there is none or it is not
    known: then all of the topic is read. save: stores the progress. rate: bytes a second, 0 for no limit.
    timeout: for acknowledgements. pause: sleeps for so many seconds.
    """

    def __init__(
        self,
        source: ForwarderSource,
        client: Client,
        topic: str,
        *,
        progress: ForwardingProgress | None,
        save: Callable[[ForwardingProgress], None],
        events: Events,
        rate: float = 0.0,
        timeout: AdaptiveTimeout | None = None,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.topic = check_topic(topic)
        self.progress = progress or ForwardingProgress()
        self._source = source
        self._client = client
        self._save = save
        self._events = events
        self._pause = pause
        self._timeout = timeout or AdaptiveTimeout()
        self._window = ForwardWindow(self._timeout, rate, lambda: client._payload_bytes_max)
        self._held = ForwardedBatches()
        """The batches that the topic holds."""
        self._target_log = 0
        self._is_unknown = False
        """True if the broker does not know the producer any more."""
        self._problem: QuothError | None = None
        self._repairs = False
        """True if batches are sent without what the broker refuses in a new one."""
        self._saved = self.progress
        self._saved_at = -math.inf
        self._progressed = False

    def run(self, *, until_end: bool = False) -> None:
        """Forward for ever, through everything that may pass; until_end: until the source has nothing more.

        Raises an error that does not pass by itself. The progress is saved in every case.
        """
        forward_through_outages(
            lambda: self._resolve_and_send(until_end=until_end),
            lambda: self._progressed,
            self._events,
            self._pause,
        )

    def _resolve_and_send(self, *, until_end: bool) -> None:
        """Make an attempt; begin again at once if the next one leaves out what was refused."""
        while True:
            before = self._repairs
            try:
                self._progressed = False
                self._resolve()
                self._attempt(until_end=until_end)
                return
            except QuothError:
                if before or not self._repairs:
                    raise

    # -- what the topic holds ---------------------------------------------------------------------------

    def _resolve(self) -> None:
        """Find out where to continue."""
        self._client.hello()
        self._source.seek(self.progress.pointer)
        self._held.restart(self.progress.ordinal)
        try:
            info = self._client.topic(self.topic)
        except NotFound:
            info = None
        self._target_log = here = info.log if info is not None else 0
        if self.progress.target_log not in (0, here):
            self._events.began_anew(f"topic {self.topic!r} was deleted; what it held is not sent again")
            self.progress = self.progress._replace(target=0, target_log=here)
            self._is_unknown = True
        if info is None or (not self.progress.producer and not self._learn_source()):
            return
        self.progress = self.progress._replace(target_log=here)
        self._read_topic()

    def _read_topic(self) -> None:
        """Find the batches of this producer in the topic, behind those that are known to be there."""
        reader = StoredSource(self._client, self.topic, self.progress.target)
        producer = self.progress.producer
        with suppress(NotFound):  # it was deleted just now, which the broker's next answer shows
            while found := reader.wait(0.0):
                self._held.add(one for one in found if one.header.producer == producer)
            if not self._held.is_empty:
                self._client.roll(self.topic)  # it syncs the records that the topic shows already

    def _learn_source(self) -> bool:
        """Set the ids of the source; False as long as it holds nothing."""
        found = self._source.wait(0.0)
        self._source.seek(self.progress.pointer)
        if found:
            log_id = self._source.log_id
            self.progress = self.progress._replace(source=log_id, producer=log_id)
        return bool(found)

    # -- an attempt -------------------------------------------------------------------------------------

    def _attempt(self, *, until_end: bool) -> None:
        """Send one batch after the other until something fails, or the end is reached."""
        self._problem = None
        window = self._window
        window.clear()
        seconds = self._timeout.seconds
        link = self._client._link(seconds)
        inflight: Inflight[ForwardedBatch] = Inflight(
            self.topic, Publish("synced"), self._settle, renumbers=False
        )
        supply = BatchSupply(window.take, window.next_at, lambda: math.inf)
        send_loop = SendLoop(link, inflight, supply, seconds)
        lingering = 0.0 if until_end else IDLE_S
        moved_at = time.monotonic()
        try:
            while self._problem is None:
                idle = window.is_idle
                if idle:
                    link.wait(0.0)  # so that the connection is checked while the source waits
                if not self._read_ahead(lingering if idle else 0.0) and idle and until_end:
                    return
                if not window.is_idle:
                    send_loop.turn()
                self._check_link(link)
                if window.sent or not window.ready or moved_at < window.free_at:
                    moved_at = time.monotonic()
                elif time.monotonic() - moved_at > GONE_S:
                    raise link.no_answer(f"forwarding to {self.topic}")
                self._save_progress(now=not window.sent)
            if not self._progressed:  # at most once an outage: without a broker no attempt begins
                self._timeout.expired()
            raise self._problem
        finally:
            link.close()
            self._save_progress(now=True)

    def _check_link(self, link: Link) -> None:
        """Raise if a first batch could be sent twice: a broker that was lost may have forgotten it."""
        if link.reconnects and any(one.begins for one in self._window.sent):
            raise link.no_answer(f"forwarding to {self.topic}")

    def _read_ahead(self, wait: float) -> bool:
        """Prepare some batches; False if there is nothing more."""
        if self._window.is_full:
            return True
        found = self._source.wait(wait)
        for one in found:
            self._prepare(one)
        return bool(found)

    def _prepare(self, one: Stored) -> None:
        """Add a batch of the source to the window, unless the topic holds it."""
        header, held = one.header, self._held
        self._check_source()
        if held.hold(one, self._source.log_id):
            self._pass_over(header)
            return
        if header.ordinal < held.expected:
            self._begin_producer(header)
            self._prepare(one)
            return
        begins = self._is_unknown or held.expected < 0
        if 0 <= held.expected < header.ordinal:
            lost = LostRecords(header.ordinal - held.expected, self.progress.pointer, header.base)
            self._events.lost(lost)
            begins = True
        flags = Flag.ORDINAL | (Flag.START if begins else 0)
        data = self._repaired(one) if self._repairs else one.data
        columns = batch.parse_header(data, 0) if data is not one.data else header
        payload = batch.claimed(data, columns, self.progress.producer, header.ordinal + 1, int(flags))
        self._is_unknown = False
        held.expected = header.end_ordinal
        self._window.add(ForwardedBatch(header=header, payload=payload, began=math.inf, begins=begins))

    def _repaired(self, one: Stored) -> Bytes:
        """Return a batch as the broker takes it; reports what is left out."""
        try:
            check_new(one.data, batch.check(one.data, self._source.log_id))
        except QuothError:
            data, wrong = repaired(one.data, self._source.log_id)
            if wrong:
                records = f"{len(wrong)} records from pointer {one.header.base + wrong[0]} on"
                self._events.began_anew(f"{records} had headers that cannot be decoded: sent without them")
            return data
        return one.data

    def _check_source(self) -> None:
        """Raise ``damaged`` if the source is another log now, ``bad_request`` if it is the topic's own."""
        log_id = self._source.log_id
        if log_id == self._target_log:
            raise error("bad_request", f"topic {self.topic!r} is the source itself", "name another topic")
        if not self.progress.source:
            self.progress = self.progress._replace(source=log_id, producer=self.progress.producer or log_id)
            if self._target_log:
                self._read_topic()
        elif self.progress.source != log_id:
            text = f"the source is another log now, {log_id:016x} instead of {self.progress.source:016x}"
            raise error("damaged", text, "forward it anew, without the standing of the old one")

    def _pass_over(self, header: Header) -> None:
        """Move the progress behind a batch that is in the topic, with all before it."""
        last = self._held.last_of(header)
        target = self.progress.target if last is None else last
        self.progress = self.progress._replace(pointer=header.last, ordinal=header.end_ordinal, target=target)

    def _begin_producer(self, header: Header) -> None:
        """Continue under another producer id: the source has lost forwarded records, as by a loss of power.

        It gives their ordinals to other records. The new id follows from the first of them, so the topic
        shows these batches later, too.
        """
        self._events.began_anew(
            f"the source has lost records up to ordinal {self._held.expected}, sent all the same"
        )
        producer = xxh3_64_intdigest(b"%d %d" % (header.base, self.progress.producer)) or 1
        self.progress = self.progress._replace(producer=producer, ordinal=header.ordinal)
        self._held.restart(header.ordinal)
        self._is_unknown = True
        self._save_progress(now=True)
        self._read_topic()

    # -- outcomes ---------------------------------------------------------------------------------------

    def _settle(self, done: ForwardedBatch, outcome: Ack | Failure) -> None:
        if isinstance(outcome, Failure):
            self._problem = self._problem or self._judge(done, outcome.error)
            return
        done.acknowledged = outcome.last
        if done.copies == 1:  # else it is not known which copy was acknowledged
            self._timeout.acknowledged(time.monotonic() - done.began)
        for one in self._window.acknowledged():
            self._progressed = True
            self.progress = self.progress._replace(
                pointer=one.header.last, ordinal=one.header.end_ordinal, target=one.acknowledged
            )
            self._events.forwarded(one.header.records, len(one.payload))

    def _judge(self, failed: ForwardedBatch, problem: QuothError) -> QuothError:
        """Return the error that ends the attempt, retryable if another one may succeed."""
        if problem.code == "bad_batch":
            self._repairs = True
            header = failed.header
            text = f"the {header.records} records from pointer {header.base} on: {problem.text}"
            return error("bad_batch", text, "all before them has arrived")
        if problem.code not in _LOST_TRACK:
            return problem
        self._is_unknown = problem.code == "unknown_producer"
        if not self._is_unknown and not self._progressed:
            if self.progress.target:
                self._events.began_anew(f"topic {self.topic!r} is not as it was; all of it is looked through")
                self.progress = ForwardingProgress(self.progress.source, self.progress.producer)
            elif problem.code == "forgotten_sequence":
                text = f"topic {self.topic!r} held records of this source, and does not tell any more which"
                return error(problem.code, text, "go on with the state of before, or with another topic")
        text = f"the broker lost track of it: {problem.text}"
        return error("out_of_sequence", text, "what the topic holds will tell where to go on")

    def _save_progress(self, *, now: bool) -> None:
        """Save the progress, now or after `SAVE_S`."""
        if self.progress == self._saved:
            return
        time_now = time.monotonic()
        if now or time_now - self._saved_at >= SAVE_S:
            if not self.progress.target_log:
                with suppress(QuothError):  # the next save asks again
                    self.progress = self.progress._replace(target_log=self._client.topic(self.topic).log)
            self._save(self.progress)
            self._saved, self._saved_at = self.progress, time_now
