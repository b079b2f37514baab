"""Executes the requests that read a log and change nothing: fetches, and queries on ranges.

Records of the active segment, and of a sealed one as far as memory holds them for a reader that goes on, are
returned at once. All else a reader thread reads; its result comes back as `ReadDone`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from quothd.requests.events import EventList, Query, ReadDone
from quothd.requests.pending_request import PendingRequest, check_range
from quothlog import Log
from quothlog.reading.range_query import LogSurvey
from quothlog.reading.read_request import ReadRequest
from quothlog.reading.segment_reader import AT_HAND_BYTES, Extract, up_to
from quothwire.protocol.messages import (
    Advance,
    AdvanceTopic,
    Count,
    CountTopic,
    Fetched,
    Parts,
    Reply,
    SplitTopic,
)

WRITING_S = 0.005
"""A topic is being written to if publishes came within this time: 200 times a second."""
STEP_BYTES = 2**17
"""A scan reads so many bytes at once meanwhile, or `STEP_SHARE` times what was written last."""
STEP_SHARE = 8
AT_HAND_WRITING_BYTES = 2**16
"""What is read without a thread meanwhile: a read of cold segments makes the system read ahead, and would let
publishes wait for that."""


class RangeQuery(NamedTuple):
    """A query on a range, which any thread may execute."""

    log_id: int
    survey: LogSurvey
    request: AdvanceTopic | SplitTopic | CountTopic

    def read(self) -> Reply:
        """Execute it; returns the reply."""
        survey, request = self.survey, self.request
        seen = survey.newest, survey.end
        match request:
            case AdvanceTopic(after=after):
                found, gone = survey.advance(after, request.records_max, request.bytes_max)
                return Advance(self.log_id, *found, gone, *seen)
            case SplitTopic(after=after, until=until):
                parts, gone = survey.split(after, until, request.parts)
                return Parts(self.log_id, list(map(list, parts)), gone, *seen)
            case CountTopic(after=after, until=until):
                count, gone = survey.count(after, until)
                return Count(self.log_id, count.records, count.bytes, gone, count.first, count.last, *seen)


class TopicReads:
    """Reads of one open log. Owned by its topic.

    found_bytes: what the last fetch has returned. last_write: the monotonic time of the last write, and its
    bytes. submit: gives a query to a reader thread.
    """

    def __init__(self, log: Log, submit: Callable[[PendingRequest, Query], None], events: EventList) -> None:
        self.found_bytes = 0
        self.last_write = 0.0, 0
        self._log = log
        self._appender = log.appender
        self._submit = submit
        self._events = events

    def go_on(self, done: ReadDone, now: float) -> None:
        """Go on with a request that a reader thread has read for. Raises what that raised."""
        if done.problem is not None:
            raise done.problem
        request, query, found = done.request, done.query, done.found
        if not isinstance(query, ReadRequest):
            self._events.answer(request, request.responder.reply(found))
        elif found is not None:
            self._answer(request, found)
        else:
            request.after = query.beyond
            self.fetch(request, now)

    # -- ranges ---------------------------------------------------------------------------------------------

    def query(self, request: PendingRequest) -> Reply | None:
        """Execute a query on a range; None if a reader thread does. Raises `QuothError`, or OSError."""
        decoded = request.decode()
        if not isinstance(decoded, AdvanceTopic):
            check_range(decoded.after, decoded.until)
        query = RangeQuery(self._log.log_id, self._log.survey(decoded.after), decoded)
        if query.survey.at_hand and not isinstance(decoded, SplitTopic):
            return query.read()
        self._submit(request, query)
        return None

    # -- batches --------------------------------------------------------------------------------------------

    def fetch(self, request: PendingRequest, now: float) -> None:
        """Execute a fetch, or give it to a reader thread. Raises `QuothError`, or OSError."""
        decoded = request.decode()
        if request.after < 0:
            request.begin_fetch(now)
        bytes_max = request.reply_bytes_max(decoded.bytes_max)
        lookup = self._log.lookup(request.after, decoded.records_max, bytes_max, request.durability)
        if lookup is None or request.is_past_end:
            self._answer_nothing(request)
        elif not lookup.sealed:
            self._answer(request, lookup.read())
        elif now - self.last_write[0] > WRITING_S:
            self._read_sealed(request, lookup, AT_HAND_BYTES, lookup.bytes_max)
        else:
            self._read_sealed(request, lookup, AT_HAND_WRITING_BYTES, self._step_bytes())

    def _read_sealed(
        self, request: PendingRequest, lookup: ReadRequest, at_hand_max: int, bytes_max: int
    ) -> None:
        """Read from memory, or let a reader thread read, no more than so many bytes each."""
        found = lookup.read_at_hand(at_hand_max)
        if found is not None:
            self._answer(request, found)
        else:
            self._submit(request, lookup._replace(bytes_max=min(lookup.bytes_max, bytes_max)))

    def _step_bytes(self) -> int:
        """Return how much a scan reads at once while the topic is written to.

        With steps of a MiB on two cores, publishes at p95 take 2.6 times as long as without a scan; with
        `STEP_BYTES` 1.7 times. A scan loses speed by it, but always gets a multiple of what is written.
        """
        return max(STEP_BYTES, STEP_SHARE * self.last_write[1])

    def _answer(self, request: PendingRequest, found: Extract | None) -> None:
        """Answer with stored batches."""
        if found is None:
            self._answer_nothing(request)
            return
        decoded, log, appender = request.message, self._log, self._appender
        seen = appender.visible if request.durability is None else appender.synced
        gone, damaged = log.loss(decoded.after, decoded.ordinal, found)
        following = found.next
        if 0 < decoded.until < following:
            found = up_to(found, log.log_id, decoded.until)
            following = max(found.next, decoded.until)
        self.found_bytes = len(found.data)
        measures = self._events.measures
        measures.records_out += found.end - found.ordinal
        measures.bytes_out += self.found_bytes
        reply = Fetched(log.log_id, following, seen.pointer, gone, seen.ordinal, damaged)
        self._events.answer(request, request.responder.reply(reply, found.data or None))

    def _answer_nothing(self, request: PendingRequest) -> None:
        """Answer without batches, or let the request wait."""
        decoded, log_id = request.message, self._log.log_id
        _, newest, end = self._log.visible_at(request.durability)
        if request.responder.sees_records_alone and (damaged := self._unreadable(decoded.after)):
            reply = Fetched(log_id, newest, newest, damaged, end, damaged)
            self._events.answer(request, request.responder.reply(reply))
            return
        is_over = 0 < decoded.until <= newest
        if request.deadline and not is_over:
            request.after = max(request.after, newest)  # what lies below is gone, so it is not new
            self._events.wait(request)
            return
        following = max(decoded.after, decoded.until) if is_over else decoded.after
        self._events.answer(request, request.responder.reply(Fetched(log_id, following, newest, 0, end)))

    def _unreadable(self, after: int) -> int:
        """Count the records stored above a pointer, of which none can be read."""
        if after >= self._log.newest:
            return 0
        found, _ = self._log.survey(after).count(after, self._log.newest)
        return found.records
