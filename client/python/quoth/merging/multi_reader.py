"""The state of a read of several topics: what to request, and which records to hand out. Without sockets.

Each topic has a `RecordReader`, and a fetch that the broker holds while nothing of the topic is at hand. For
a read in order, `Rounds` find out up to which time no older record can come.

Before the read begins, the topics that match are listed and, if it begins at their ends, these are requested.

The driver owns the connection and tells the time. In each turn it sends what `ask` returns, hands out what
`hand_out` returns, and otherwise waits for an answer for `take`, until `due` at the latest.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from quoth.batch import Batch
from quoth.core.options import Timing, as_seconds
from quoth.core.request_state import BACKOFF_MAX_S, BACKOFF_S, RETRIED, RequestState
from quoth.cursor import Cursor, Position
from quoth.merging.merge import Run, TopicMerge
from quoth.merging.rounds import TO_COME, Rounds, Take, TopicSource
from quoth.merging.selection import Selection
from quoth.message import Gap, Message, OnGap
from quoth.reader import FETCH_BYTES, RecordReader, log_gap
from quoth.timestamps import Start, Timestamp, last_before, start
from quothwire.errors import QuothError, error
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import TOPICS_MAX as NAMES_MAX
from quothwire.protocol.messages import Fetch, Fetched, ListTopics, Request, Topics

AT_HAND_BYTES, AT_HAND_BYTES_MIN = 32 * 2**20, 64 * 2**10
"""Bytes that all topics together have at hand, and the least that one fetch asks for."""


class ReadPlan(NamedTuple):
    """The plan for a read of several topics.

    follow: for ever, else what is there now. ordered: in the order of time. start: the cursor to begin with,
    or one for each topic, or None for the end of each. end: the last pointer. cursor: once it knows any
    topic, it says where all begin. is_time: start was given as a time.
    """

    follow: bool
    ordered: bool
    start: Start | None = None
    end: int = POINTER_MAX
    cursor: Cursor | None = None
    is_time: bool = False

    @classmethod
    def of(
        cls,
        after: Start | None,
        since: Timestamp | None,
        cursor: Cursor | None,
        *,
        ordered: bool,
        follow: bool,
        until: Timestamp | None = None,
    ) -> ReadPlan:
        """Return the plan for the arguments of `read_many` or `tail_many`. Raises `RequestError`."""
        begin = start(after, since, None if follow else 0)
        return cls(follow, ordered, begin, last_before(until), cursor, since is not None)


class _Query(NamedTuple):
    """A request, and the method that takes its answer. wait: seconds for which the broker may hold it."""

    request: Request
    topic: str
    take: Take
    wait: float


class MultiReader:
    """The read of several topics, from requests to records. Owned by one thread.

    timeout: seconds that the broker may take to answer a read of what is there; a tail waits for ever. Raises
    `RequestError` ``bad_topic``, or ``bad_request`` if nothing is selected.
    """

    def __init__(
        self,
        topics: str | Iterable[str],
        plan: ReadPlan,
        on_gap: OnGap | None,
        timeout: float,
        timing: Timing | None = None,
    ) -> None:
        self.is_begun = False
        """True once it is known where each topic begins."""
        self._selection = Selection(topics)
        self._plan = plan
        self._on_gap = on_gap or log_gap
        self._timeout = as_seconds(timeout)
        self._timing = timing or Timing()
        self._merge = TopicMerge(ordered=plan.ordered)
        self._sources: dict[str, TopicSource] = {}
        self._queries: list[_Query] = []
        """To be sent in the next turn."""
        self._asked: dict[RequestState, _Query] = {}
        self._runs: deque[Run] = deque()
        self._watermark = self._next_watermark = 0
        """The watermark by now, and the one once all runs are handed out."""
        patterns = self._selection.has_patterns
        self._rounds = Rounds(self._merge, self._sources, self._ask, self._list if patterns else None)
        self._list_at = math.inf
        self._is_new = plan.cursor is None or not plan.cursor.topics
        self._without_end: set[str] = set()
        """The topics that begin at their end, which is not known yet."""
        for name in self._selection.names:
            self._add(name)
        if patterns:
            self._list(self._find_ends)
        else:
            self._find_ends(0.0, True)

    # -- for the driver ---------------------------------------------------------------------------------

    def ask(self, now: float, every: float) -> list[RequestState]:
        """Return the requests to send now, before the records at hand are handed out.

        now: by the monotonic clock. every: seconds between two rounds while no record is held back.
        """
        if self.is_begun and not self._runs:
            self._runs.extend(self._merge.take())
            self._next_watermark = max(self._next_watermark, self._merge.watermark)
            if not self._runs:
                self._watermark = self._next_watermark
            self._fetch_more(now)
            if self._plan.follow:
                self._look_for_more(now, every)
        queries, self._queries = self._queries, []
        return [self._begin_request(query, now) for query in queries]

    def take(self, request: RequestState, answer: Answer, now: float) -> None:
        """Process the answer to a request. Raises the error that ends the read."""
        if request.unanswered:
            self._rounds.resent()
        query = self._asked.pop(request)
        query.take(query.topic, answer, now)

    def waited(self, seconds: float) -> None:
        """Note for how long the driver waited for answers."""
        self._rounds.waited(seconds)

    def hand_out(self) -> list[Message] | None:
        """Return the next records that follow one another; None if none may be handed out yet.

        Reports the gaps in front of them, and raises what `on_gap` raises.
        """
        while self._runs:
            run = self._runs.popleft()
            if not self._runs:
                self._watermark = self._next_watermark
            if not isinstance(run, Gap):
                return run
            self._on_gap(run)
        return None

    @property
    def is_over(self) -> bool:
        """True if everything was handed out."""
        return self.is_begun and not (self._plan.follow or self._sources or self._runs)

    @property
    def due(self) -> float:
        """The time to call `ask` at the latest if no answer comes."""
        if not self.is_begun:
            return math.inf
        dues = [self._list_at]
        if self._plan.follow:
            dues.append(self._rounds.due)
        for name, source in self._sources.items():
            if not source.asked and self._merge.needs(name):
                dues.append(source.again_at)
        return min(dues)

    @property
    def topics(self) -> list[str]:
        """The topics that are read now."""
        return list(self._sources)

    @property
    def watermark(self) -> int:
        """The pointer up to which all topics were handed out; 0 if they are not ordered."""
        return self._watermark if self._plan.ordered else 0

    @property
    def late(self) -> int:
        """The number of records that came after a younger one of another topic."""
        return self._merge.late

    def waiting_for(self, away: str | None) -> dict[str, str]:
        """Return the topics that hold back the next record, each with the reason.

        away: the address of a broker that cannot be reached now.
        """
        held = self._merge.held
        if held is None:
            return {}
        return {
            name: self._reason(name, held) if away is None else f"no broker answers at {away}"
            for name in self._merge.behind(held)
        }

    def _reason(self, name: str, held: int) -> str:
        source = self._sources.get(name)
        if source is not None and source.problem is not None:
            return source.problem.text
        if name == TO_COME:
            return "it is looked for new topics that match"
        clock = self._rounds.clock
        if clock and clock < held:
            return f"the broker's clock is {(held - clock) / 1e6:.1f} s behind the next record"
        return "older records may be on their way"

    # -- which topics, and where they begin -------------------------------------------------------------

    def _list(self, done: Callable[[float, bool], None], after: str = "") -> None:
        """Request names of topics and add the new ones that match.

        done: is called at the end of the list with the time, and False if the broker has refused.
        """

        def take(_: str, answer: Answer, now: float) -> None:
            reply = answer.reply
            if isinstance(reply, QuothError) and not self.is_begun:
                raise reply
            names = reply.names if isinstance(reply, Topics) else []
            for name in names:
                if name not in self._sources and self._selection.matches(name):
                    self._add(name)
            if len(names) == NAMES_MAX:
                self._list(done, names[-1])
            else:
                done(now, isinstance(reply, Topics))

        self._ask(ListTopics(after=after), "", take)

    def _find_ends(self, now: float, _: bool) -> None:
        if not self._sources and not self._plan.follow:
            raise error("unknown_topic", f"no topic matches {self._selection}")
        if self._is_new and self._plan.start is None:
            self._without_end.update(self._sources)
            for name in self._sources:
                self._ask(Fetch(after=POINTER_MAX), name, self._end_found)
        if not self._without_end:
            self._begin(now)

    def _end_found(self, name: str, answer: Answer, now: float) -> None:
        reply = answer.reply
        if isinstance(reply, Fetched):
            self._sources[name].reader.go_to_end(reply)
        elif isinstance(reply, QuothError) and reply.code != "unknown_topic":
            raise reply
        self._without_end.discard(name)
        if not self._without_end:
            self._begin(now)

    def _begin(self, now: float) -> None:
        self.is_begun = True
        if self._plan.follow and self._selection.has_patterns:
            self._merge.add(TO_COME)
            self._list_later(now, True)
        if self._plan.cursor is not None:
            for name, source in self._sources.items():
                reader = source.reader
                self._plan.cursor.begin(name, Position(reader.after, reader.log_id, reader.ordinal))

    def _add(self, name: str) -> None:
        """Add a topic: from its beginning, unless the plan or the stored cursor says more."""
        position = self._plan.cursor.position(name) if self._plan.cursor is not None else None
        start = self._plan.start or 0
        after = start if isinstance(start, int) else start.get(name, 0)
        if not self._is_new or self.is_begun:
            after = 0
        self._merge.add(name)
        reader = RecordReader(name, after, partial(self._merge.push, name))
        reader.is_time = self._plan.is_time
        if position is not None:
            reader.resume(*position)
        self._sources[name] = TopicSource(reader)

    def _drop(self, name: str) -> None:
        del self._sources[name]
        self._merge.end(name)

    def _list_later(self, now: float, _: bool) -> None:
        self._list_at = now + self._timing.list_pause

    # -- requests ---------------------------------------------------------------------------------------

    def _fetch_more(self, now: float) -> None:
        """Fetch of each topic that has nothing at hand."""
        size = min(FETCH_BYTES, max(AT_HAND_BYTES // max(1, len(self._sources)), AT_HAND_BYTES_MIN))
        for name, source in self._sources.items():
            if not source.asked and source.again_at <= now and self._merge.needs(name):
                source.asked = True
                wait = source.reader.first_wait(self._timing.tail_wait) if self._plan.follow else 0.0
                self._ask(source.reader.next_fetch(wait, size), name, self._fetched, wait)

    def _look_for_more(self, now: float, every: float) -> None:
        """List new topics and begin a round, each if it is due."""
        if now >= self._list_at:
            self._list_at = math.inf
            self._list(self._list_later)
        if self._plan.ordered:
            self._rounds.begin(now, every)

    def _ask(self, request: Request, topic: str, take: Take, wait: float = 0.0) -> None:
        self._queries.append(_Query(request, topic, take, wait))

    def _begin_request(self, query: _Query, now: float) -> RequestState:
        wait = query.wait
        # After the beginning an error is an answer, so that a topic that delays the others is reported.
        retried = frozenset[str]() if self.is_begun else RETRIED
        deadline = now + wait + (math.inf if self._plan.follow else self._timeout)
        request = RequestState(query.request, query.topic, deadline=deadline, wait=wait, retried=retried)
        self._asked[request] = query
        return request

    # -- records ----------------------------------------------------------------------------------------

    def _fetched(self, name: str, answer: Answer, now: float) -> None:
        source = self._sources.get(name)
        if source is None:
            return
        source.asked = False
        if isinstance(answer.reply, QuothError):
            self._refused(name, source, answer.reply, now)
            return
        source.problem, source.backoff, source.again_at = None, BACKOFF_S, 0.0
        reader, log = source.reader, source.reader.log_id
        for batch in reader.take(answer):
            self._push(batch, reader.log_id)
        if reader.log_id != log:
            source.standing = None
        if not self._plan.follow and (not reader.has_more or reader.after >= self._plan.end):
            self._drop(name)
        else:
            source.settle(self._merge)

    def _push(self, batch: Batch, log: int) -> None:
        if batch.first <= self._plan.end:
            kept = batch.head(self._plan.end + 1 - batch.first)
            if self._plan.cursor is not None:
                self._plan.cursor.expect(kept, log)
            self._merge.push(kept.topic, kept)

    def _refused(self, name: str, source: TopicSource, problem: QuothError, now: float) -> None:
        """Drop a deleted topic, wait for one that does not exist yet, try again, or raise the error."""
        reader = source.reader
        if problem.code == "unknown_topic":
            if name not in self._selection.names:
                self._drop(name)
            elif self._plan.follow and not reader.has_answered:
                reader.resume(reader.after, reader.log_id, -1)  # so that the broker waits for it
            else:
                raise problem
            return
        if source.problem is None:
            source.refused_at = now
        if not problem.retryable or (not self._plan.follow and now - source.refused_at > self._timeout):
            raise problem
        source.problem = problem
        source.again_at = now + source.backoff
        source.backoff = min(2 * source.backoff, BACKOFF_MAX_S)
