"""What is read of several topics, and in which order it may be handed out: without sockets and clocks.

Each topic has a `RecordReader`, and a fetch that waits at the broker while nothing of the topic is at hand.
Records
are handed out in order once each topic without any is known to have nothing older to come. For that there are
rounds:

    ping        the broker's clock: T. Whatever is appended later gets a pointer of at least T
    list        topics that match a pattern and are not known yet take part from now on
    describe    each topic that has nothing at hand: if the newest record that can be seen has come, and none
                waits for an fsync to be seen, then nothing at or below T comes of it any more

Rounds are made while a record is held back. What the order rests on is that the broker's clock does not step
back: a record that comes with an older pointer nevertheless is handed out at once, and counted as late.

Before that it begins: the topics that match are listed, and where they end is asked, if it begins there.

Whoever drives it owns the connection and tells the time. In each turn he sends what `ask` gives, hands out
what `hand_out` gives, and without that waits until an answer comes for `take`, or `due`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from quoth.batch import Batch
from quoth.core.adaptive_timeout import bounded
from quoth.core.deadline import as_seconds
from quoth.core.merge import Run, TopicMerge
from quoth.core.request_state import BACKOFF_MAX_S, BACKOFF_S, RETRIED, RequestState
from quoth.cursor import Cursor, Position
from quoth.message import Gap, Message, OnGap
from quoth.reader import FETCH_BYTES, RecordReader, log_gap
from quoth.selection import Selection
from quothwire.errors import NotFound, QuothError, error
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import TOPICS_MAX as NAMES_MAX
from quothwire.protocol.messages import (
    DescribeTopic,
    Fetch,
    Fetched,
    ListTopics,
    Ping,
    Pong,
    TopicInfo,
    Topics,
)
from quothwire.protocol.operations import Request

WAIT_S = 30.0
"""How long the broker keeps a fetch; a longer silence is a second request."""
LIST_S = 1.0
"""How often it is looked for new topics that match a pattern."""
ROUND_S, ROUND_REST, ROUND_REST_MAX_S = 0.005, 4, 0.5
"""Rounds begin this far apart, and rest so many times as long as they took, so that many idle topics cost
little, or until the broker's clock has reached the next record; but no longer than the last of these: what a
round took may contain an outage."""
AT_HAND_BYTES, AT_HAND_BYTES_MIN = 32 * 2**20, 64 * 2**10
"""What all topics together have at hand, and the least that one asks for at once."""

TO_COME = ""
"""Stands for all topics that match a pattern and are not known yet: each list settles them up to its time."""

Take = Callable[[str, Answer], None]
Start = int | Mapping[str, int]
"""A cursor, or one for each topic that is named there; any other is read from its beginning."""


class ReadPlan(NamedTuple):
    """How it is read. follow: for ever, else what is there now. start: the cursor to begin with, or one for
    each topic, or None for the end of each; is_time: given as a time. end: the last pointer. cursor: once it
    knows any topic, it says where all begin."""

    follow: bool
    ordered: bool
    start: Start | None = None
    end: int = POINTER_MAX
    cursor: Cursor | None = None
    is_time: bool = False


@dataclass(slots=True)
class _Source:
    """A topic that is read. asked: a fetch is on its way. trouble: the last refusal, since `refused_at`;
    again_at: when to ask anew. standing: a time, and the pointer behind which nothing comes that is older."""

    reader: RecordReader
    asked: bool = False
    again_at: float = 0.0
    backoff: float = BACKOFF_S
    refused_at: float = 0.0
    trouble: QuothError | None = None
    standing: tuple[int, int] | None = None


@dataclass(slots=True)
class _Round:
    """took: seconds that its answers were waited for. clock: the broker's. left: topics not described yet."""

    took: float = 0.0
    clock: int = 0
    left: set[str] = field(default_factory=set)


class _Question(NamedTuple):
    """What is asked of a topic, and who takes the answer. wait: seconds that the broker may keep it."""

    request: Request
    topic: str
    take: Take
    wait: float


class MultiReader:
    """Records of several topics, from what is asked to what is handed out. Owned by one thread.

    timeout: seconds that the broker may take to answer who reads what is there; who follows waits for ever.
    Raises `RequestError` ``bad_topic``, or ``bad_request`` if nothing is selected.
    """

    def __init__(
        self, topics: str | Iterable[str], plan: ReadPlan, on_gap: OnGap | None, timeout: float
    ) -> None:
        self.is_begun = False
        """Is it known where each topic begins?"""
        self._selection = Selection(topics)
        self._plan = plan
        self._on_gap = on_gap or log_gap
        self._timeout = as_seconds(timeout)
        self._now = 0.0
        self._merge = TopicMerge(ordered=plan.ordered)
        self._sources: dict[str, _Source] = {}
        self._to_ask: list[_Question] = []
        """What is to be asked in the next turn."""
        self._asked: dict[RequestState, _Question] = {}
        self._runs: deque[Run] = deque()
        self._level = self._watermark = 0
        """The watermark once all of those are handed out, and the one by now."""
        self._round: _Round | None = None
        self._round_at = 0.0
        self._clock = 0
        self._list_at = math.inf
        self._is_new = plan.cursor is None or not plan.cursor.topics
        self._without_end: set[str] = set()
        """The topics of which it is not known yet where they end, and so begin."""
        for name in self._selection.names:
            self._add(name)
        if self._selection.has_patterns:
            self._will_ask(ListTopics(), "", self._listed_first)
        else:
            self._find_ends()

    # -- for whoever drives it --------------------------------------------------------------------------

    def ask(self, now: float, every: float) -> list[RequestState]:
        """What is to be sent now, so that it is on its way while what is at hand is looked at.

        now: by the monotonic clock. every: seconds between two rounds while nothing is held back.
        """
        self._now = now
        if self.is_begun and not self._runs:
            self._runs.extend(self._merge.take())
            self._level = max(self._level, self._merge.watermark)
            if not self._runs:
                self._watermark = self._level
            self._go_on(every)
        to_ask, self._to_ask = self._to_ask, []
        return list(map(self._exchange, to_ask))

    def take(self, exchange: RequestState, answer: Answer, now: float) -> None:
        """Take in the answer to what was asked. Raises what ends the reading."""
        self._now = now
        if exchange.unheard and self._round is not None:  # sent twice: that was an outage, and no work
            self._round.took = 0.0
        question = self._asked.pop(exchange)
        question.take(question.topic, answer)

    def waited(self, seconds: float) -> None:
        """So long it was waited for answers."""
        if self._round is not None:
            self._round.took += seconds

    def hand_out(self) -> list[Message] | None:
        """The next records, as many at once as follow one another; None if none may be handed out by now.

        Tells the gaps before them, and raises what `on_gap` raises.
        """
        while self._runs:
            run = self._runs.popleft()
            if not self._runs:
                self._watermark = self._level
            if not isinstance(run, Gap):
                return run
            self._on_gap(run)
        return None

    @property
    def is_over(self) -> bool:
        """Has all been handed out that there was to read?"""
        return self.is_begun and not (self._plan.follow or self._sources or self._runs)

    @property
    def due(self) -> float:
        """When to ask for something at the latest, if no answer comes."""
        if not self.is_begun:
            return math.inf
        dues = [self._list_at]
        if self._plan.follow and self._round is None and self._merge.held is not None:
            dues.append(self._round_at)
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
        """Everything up to this pointer has been handed out, of all topics; 0 if they are not ordered."""
        return self._watermark if self._plan.ordered else 0

    @property
    def late(self) -> int:
        """Records that came after a younger one of another topic."""
        return self._merge.late

    def waiting_for(self, away: str | None) -> dict[str, str]:
        """The topics that hold back the next record, each with the reason; none if no record is held back.

        away: the address of a broker that cannot be reached by now.
        """
        held = self._merge.held
        if held is None:
            return {}
        return {
            name: self._why(name, held) if away is None else f"no broker answers at {away}"
            for name in self._merge.behind(held)
        }

    def _why(self, name: str, held: int) -> str:
        source = self._sources.get(name)
        if source is not None and source.trouble is not None:
            return source.trouble.text
        if name == TO_COME:
            return "it is looked for new topics that match"
        if self._clock and self._clock < held:
            return f"the broker's clock is {(held - self._clock) / 1e6:.1f} s behind the next record"
        return "older records may be on their way"

    # -- which topics, and where they begin -------------------------------------------------------------

    def _listed_first(self, _: str, answer: Answer) -> None:
        if isinstance(answer.reply, QuothError):
            raise answer.reply
        if self._take_names(answer, self._listed_first):
            self._find_ends()

    def _find_ends(self) -> None:
        if not self._sources and not self._plan.follow:
            raise error("unknown_topic", f"no topic matches {self._selection}")
        if self._is_new and self._plan.start is None:
            self._without_end.update(self._sources)
            for name in self._sources:
                self._will_ask(Fetch(after=POINTER_MAX), name, self._end_found)
        if not self._without_end:
            self._begin()

    def _end_found(self, name: str, answer: Answer) -> None:
        reply = answer.reply
        if isinstance(reply, Fetched):
            self._sources[name].reader.go_to_end(reply)
        elif isinstance(reply, QuothError) and reply.code != "unknown_topic":
            raise reply
        self._without_end.discard(name)
        if not self._without_end:
            self._begin()

    def _begin(self) -> None:
        self.is_begun = True
        if self._plan.follow and self._selection.has_patterns:
            self._merge.add(TO_COME)
            self._list_at = self._now + LIST_S
        if self._plan.cursor is not None:
            for name, source in self._sources.items():
                reader = source.reader
                self._plan.cursor.begin(name, Position(reader.after, reader.log_id, reader.ordinal))

    def _add(self, name: str) -> None:
        """Let a topic take part: from its beginning, unless the plan or the cursor in the file says more."""
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
        self._sources[name] = _Source(reader)

    def _drop(self, name: str) -> None:
        """Nothing more comes of a topic."""
        del self._sources[name]
        self._merge.end(name)

    # -- asking -----------------------------------------------------------------------------------------

    def _go_on(self, every: float) -> None:
        """Ask for what is needed by now."""
        size = min(FETCH_BYTES, max(AT_HAND_BYTES // max(1, len(self._sources)), AT_HAND_BYTES_MIN))
        for name, source in self._sources.items():
            if not source.asked and source.again_at <= self._now and self._merge.needs(name):
                source.asked = True
                wait = source.reader.first_wait(WAIT_S) if self._plan.follow else 0.0
                self._will_ask(source.reader.question(wait, size), name, self._fetched, wait)
        if not self._plan.follow:
            return
        if self._now >= self._list_at:
            self._list_at = math.inf
            self._will_ask(ListTopics(), "", self._listed)
        round_at = self._round_at + (every if self._merge.held is None else 0.0)
        if self._plan.ordered and self._round is None and self._now >= round_at:
            self._round = _Round()
            self._will_ask(Ping(), "", self._ponged)

    def _will_ask(self, request: Request, topic: str, take: Take, wait: float = 0.0) -> None:
        self._to_ask.append(_Question(request, topic, take, wait))

    def _exchange(self, question: _Question) -> RequestState:
        request, topic, _, wait = question
        patience = math.inf if self._plan.follow else self._timeout
        # Later on a refusal is an answer, so that one topic does not hold up the others unnoticed.
        retried = frozenset[str]() if self.is_begun else RETRIED
        deadline = self._now + wait + patience
        exchange = RequestState(request, topic, deadline=deadline, wait=wait, retried=retried)
        self._asked[exchange] = question
        return exchange

    # -- records ----------------------------------------------------------------------------------------

    def _fetched(self, name: str, answer: Answer) -> None:
        source = self._sources.get(name)
        if source is None:
            return
        source.asked = False
        if isinstance(answer.reply, QuothError):
            self._refused(name, source, answer.reply)
            return
        source.trouble, source.backoff, source.again_at = None, BACKOFF_S, 0.0
        reader, log = source.reader, source.reader.log_id
        for batch in reader.take(answer):
            self._push(batch, reader.log_id)
        if reader.log_id != log:
            source.standing = None
        if not self._plan.follow and (not reader.looking or reader.after >= self._plan.end):
            self._drop(name)
        else:
            self._settle(name, source)

    def _push(self, batch: Batch, log: int) -> None:
        if batch.first <= self._plan.end:
            kept = batch.head(self._plan.end + 1 - batch.first)
            if self._plan.cursor is not None:
                self._plan.cursor.expect(kept, log)
            self._merge.push(kept.topic, kept)

    def _refused(self, name: str, source: _Source, problem: QuothError) -> None:
        """Go on without a topic that is gone, wait for one to come, try again, or end."""
        now, reader = self._now, source.reader
        if problem.code == "unknown_topic":
            if name not in self._selection.names:
                self._drop(name)
            elif self._plan.follow and not reader.seen:
                reader.resume(reader.after, reader.log_id, -1)  # so that the broker waits for it
            else:
                raise problem
            return
        if source.trouble is None:
            source.refused_at = now
        if not problem.retryable or (not self._plan.follow and now - source.refused_at > self._timeout):
            raise problem
        source.trouble = problem
        source.again_at = now + source.backoff
        source.backoff = min(2 * source.backoff, BACKOFF_MAX_S)

    # -- rounds -----------------------------------------------------------------------------------------

    def _ponged(self, _: str, answer: Answer) -> None:
        assert self._round is not None
        if isinstance(answer.reply, Pong):
            self._clock = self._round.clock = answer.reply.time
        if self._selection.has_patterns:
            self._will_ask(ListTopics(), "", self._listed_in_round)
        else:
            self._describe_behind(self._round)

    def _listed_in_round(self, _: str, answer: Answer) -> None:
        if self._take_names(answer, self._listed_in_round):
            assert self._round is not None
            if isinstance(answer.reply, Topics):
                self._merge.settle(TO_COME, self._round.clock)
            self._describe_behind(self._round)

    def _describe_behind(self, round_: _Round) -> None:
        """Ask how the topics stand that hold back a record; without one, all that have nothing at hand."""
        held = self._merge.held
        round_.left.update(self._merge.behind(round_.clock if held is None else min(round_.clock, held)))
        round_.left.discard(TO_COME)
        for name in round_.left:
            self._will_ask(DescribeTopic(), name, self._described)
        self._end_round(round_)

    def _described(self, name: str, answer: Answer) -> None:
        assert self._round is not None
        source, reply, clock = self._sources.get(name), answer.reply, self._round.clock
        if source is not None:
            log = source.reader.log_id
            if isinstance(reply, TopicInfo) and reply.log == (log or reply.log):
                if not reply.counters.get("unseen_records"):
                    source.standing = clock, reply.last
            elif isinstance(reply, NotFound) and not source.reader.seen:
                source.standing = clock, 0
            self._settle(name, source)
        self._round.left.discard(name)
        self._end_round(self._round)

    def _settle(self, name: str, source: _Source) -> None:
        """Tell the merge what is known of a topic, once all has come that was there when it became known."""
        if source.standing is not None and source.reader.after >= source.standing[1]:
            self._merge.settle(name, source.standing[0])
            source.standing = None

    def _end_round(self, round_: _Round) -> None:
        """End the round unless some topics have not answered yet."""
        if not round_.left:
            ahead = ((self._merge.held or 0) - round_.clock) / 1e6
            rest = bounded(max(ROUND_REST * round_.took, ahead), ROUND_S, ROUND_REST_MAX_S)
            self._round, self._round_at = None, self._now + rest

    # -- new topics -------------------------------------------------------------------------------------

    def _listed(self, _: str, answer: Answer) -> None:
        if self._take_names(answer, self._listed):
            self._list_at = self._now + LIST_S

    def _take_names(self, answer: Answer, more: Take) -> bool:
        """Let new topics take part; True unless the list goes on: then the rest is asked for."""
        if not isinstance(answer.reply, Topics):
            return True
        for name in (names := answer.reply.names):
            if name not in self._sources and self._selection.matches(name):
                self._add(name)
        if len(names) == NAMES_MAX:
            self._will_ask(ListTopics(after=names[-1]), "", more)
            return False
        return True
