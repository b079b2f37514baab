"""What is asked of an open log and changes nothing: batches, and ranges of them.

What lies in the active segment, or in memory for somebody who reads on, is answered at once. For all else a
reader thread looks; what it has seen comes back through the inbox.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from quothd.requests.event_list import Voice
from quothd.requests.pending_request import PendingRequest, check_range
from quothd.threads.reader_pool import Looked, ReaderPool, Writes
from quothlog import Log
from quothlog.reading.range_query import LogSurvey
from quothlog.reading.read_request import ReadRequest
from quothlog.reading.segment_reader import Extract, up_to
from quothwire.protocol.messages import (
    FETCH_BYTES_MAX,
    Advance,
    AdvanceTopic,
    Count,
    CountTopic,
    Fetched,
    Operation,
    Parts,
    SplitTopic,
)
from quothwire.protocol.operations import Reply


class Ranged(NamedTuple):
    """A question about a range, to be answered in any thread."""

    log_id: int
    survey: LogSurvey
    request: AdvanceTopic | SplitTopic | CountTopic

    @property
    def is_quick(self) -> bool:
        """Is it answered in a moment, without a disk?"""
        return self.survey.at_hand and not isinstance(self.request, SplitTopic)

    def read(self) -> Reply:
        """The answer."""
        survey, request = self.survey, self.request
        seen = survey.newest, survey.end
        match request:
            case AdvanceTopic(after=after):
                stretch, gone = survey.advance(after, request.records_max, request.bytes_max)
                return Advance(self.log_id, *stretch, gone, *seen)
            case SplitTopic(after=after, until=until):
                parts, gone = survey.split(after, until, request.parts)
                return Parts(self.log_id, list(map(list, parts)), gone, *seen)
            case CountTopic(after=after, until=until):
                found, gone = survey.count(after, until)
                return Count(self.log_id, found.records, found.bytes, gone, found.first, found.last, *seen)


class Reads:
    """Reading one open log; like it, it has one owner.

    actions: what is done for each operation. found_bytes: what the last fetch has brought. writes: to be told
    what is written. bring: takes what a reader thread has seen. voice: tells what becomes of a job.
    """

    def __init__(
        self,
        log: Log,
        readers: ReaderPool,
        bring: Callable[[object], None],
        voice: Voice,
    ) -> None:
        self.found_bytes = 0
        self.writes = Writes()
        self.actions: dict[Operation, Callable[[PendingRequest], None]] = {
            Operation.FETCH: self._fetch,
            Operation.ADVANCE: self._ask,
            Operation.SPLIT: self._ask,
            Operation.COUNT: self._ask,
        }
        self._log = log
        self._readers = readers
        self._bring = bring
        self._voice = voice

    def go_on(self, looked: Looked) -> None:
        """Go on with a job after a reader has looked for it. Raises what that raised."""
        if looked.problem is not None:
            raise looked.problem
        job, question, found = looked.job, looked.question, looked.found
        if not isinstance(question, ReadRequest):
            self._voice.answer(job, job.responder.reply(found))
        elif found is not None:
            self._found(job, found)
        else:
            job.after = question.beyond
            self._fetch(job)

    # -- ranges -----------------------------------------------------------------------------------------

    def _ask(self, job: PendingRequest) -> None:
        request = job.decode()
        if not isinstance(request, AdvanceTopic):
            check_range(request.after, request.until)
        question = Ranged(self._log.log_id, self._log.survey(request.after), request)
        if question.is_quick:
            self._voice.answer(job, job.responder.reply(question.read()))
        else:
            self._readers.submit(job, question, self._bring)

    # -- batches ----------------------------------------------------------------------------------------

    def _fetch(self, job: PendingRequest) -> None:
        request = job.decode()
        if job.after < 0:
            job.begin_fetch(time.monotonic())
        lookup = self._log.lookup(job.after, request.records_max, min(request.bytes_max, FETCH_BYTES_MAX))
        if lookup is None or job.is_past_end:
            self._nothing(job)
        elif lookup.sealed and (found := lookup.read_at_hand()) is not None:
            self._found(job, found)
        elif lookup.sealed:
            self._readers.submit(job, self.writes.make_way(lookup), self._bring)
        else:
            self._found(job, lookup.read())

    def _found(self, job: PendingRequest, found: Extract | None) -> None:
        if found is None:
            self._nothing(job)
            return
        request, log = job.request, self._log
        gone, damaged = log.loss(request.after, request.ordinal, found)
        data, following = found.data, found.next
        if 0 < request.until < following:
            data, following = up_to(found, log.log_id, request.until)
        self.found_bytes = len(data)
        reply = Fetched(log.log_id, following, log.newest, gone, log.end_ordinal, damaged)
        self._voice.answer(job, job.responder.reply(reply, data or None))

    def _nothing(self, job: PendingRequest) -> None:
        """There is nothing yet, or nothing more up to the end."""
        request, newest = job.request, self._log.newest
        if job.responder.sees_records_alone and (damaged := self._unreadable(request.after)):
            end = self._log.end_ordinal
            self._voice.answer(
                job, job.responder.reply(Fetched(self._log.log_id, newest, newest, damaged, end, damaged))
            )
            return
        is_over = 0 < request.until <= newest
        if job.deadline and not is_over:
            job.after = max(job.after, newest)  # what lies below is gone, so it is no news
            self._voice.park(job)
            return
        following = max(request.after, request.until) if is_over else request.after
        reply = Fetched(self._log.log_id, following, newest, 0, self._log.end_ordinal)
        self._voice.answer(job, job.responder.reply(reply))

    def _unreadable(self, after: int) -> int:
        """How many records are stored above a pointer, given that none of them can be read."""
        if after >= self._log.newest:
            return 0
        found, _ = self._log.survey(after).count(after, self._log.newest)
        return found.records
