"""Reading several topics at once, as their records come or in the order of their time, over one connection.

Each topic has a `Reader`, and a fetch that waits at the broker while nothing of the topic is at hand. Records
are handed out in order once each topic without any is known to have nothing older to come. For that there are
rounds:

    ping        the broker's clock: T. Whatever is appended later gets a pointer of at least T
    list        topics that match a pattern and are not known yet take part from now on
    describe    each topic that has nothing at hand: if the newest record that can be seen has come, and none
                waits for an fsync to be seen, then nothing at or below T comes of it any more

Rounds are made while a record is held back. What the order rests on is that the broker's clock does not step
back: a record that comes with an older pointer nevertheless is handed out at once, and counted as late.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from types import TracebackType
from typing import NamedTuple, Self

import zmq

from quoth.batch import Batch
from quoth.cursor import Cursor, Position
from quoth.deadline import deadline_in
from quoth.exchange import BACKOFF_MAX_S, BACKOFF_S, RETRIED
from quoth.merge import Merge, Run
from quoth.message import Gap, Message, OnGap
from quoth.pool import Pool
from quoth.questions import Questions
from quoth.reader import FETCH_BYTES, Reader, log_gap
from quoth.selection import Selection
from quothwire.codec import Answer
from quothwire.errors import NotFound, QuothError, error
from quothwire.message import TOPICS_MAX as NAMES_MAX
from quothwire.message import (
    DescribeTopic,
    Fetch,
    Fetched,
    ListTopics,
    Ping,
    Pong,
    Request,
    TopicInfo,
    Topics,
)
from quothwire.pointer import POINTER_MAX

WAIT_S = 30.0
"""How long the broker keeps a fetch; a longer silence is a second request."""
LIST_S = 1.0
"""How often it is looked for new topics that match a pattern."""
LOOK_S = 0.5
"""How often it is looked whether the client was closed."""
ROUND_S, ROUND_REST = 0.005, 4
"""Rounds begin this far apart, and rest so many times as long as they took: many idle topics cost little."""
AT_HAND_BYTES, AT_HAND_BYTES_MIN = 32 * 2**20, 64 * 2**10
"""What all topics together have at hand, and the least that one asks for at once."""

TO_COME = ""
"""Stands for all topics that match a pattern and are not known yet: each list settles them up to its time."""

Take = Callable[[str, Answer], None]


class Plan(NamedTuple):
    """How it is read. follow: for ever, else what is there now. start: the cursor to begin with, None for the
    end of each topic. end: the last pointer. cursor: once it knows any topic, it says where all begin."""

    follow: bool
    ordered: bool
    start: int | None = None
    end: int = POINTER_MAX
    cursor: Cursor | None = None


@dataclass(slots=True)
class _Source:
    """A topic that is read. asked: a fetch is on its way. trouble: the last refusal, since `refused_at`;
    again_at: when to ask anew. standing: a time, and the pointer behind which nothing comes that is older."""

    reader: Reader
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


class Reading:
    """Records of several topics; made by `Client.tail_many` and `Client.read_many`. Belongs to one thread.

    Iterating gives messages, `portions` what has come at once. Each topic's records keep their order; with
    ``ordered`` those of all topics come in the order of their pointers, equal ones by the topics' names.
    To be closed, or used as a context manager.
    """

    def __init__(
        self,
        pool: Pool,
        timeout: float,
        topics: str | Iterable[str],
        plan: Plan,
        on_gap: OnGap | None,
    ) -> None:
        self._selection = Selection(topics)
        self._pool, self._timeout, self._plan = pool, timeout, plan
        self._on_gap = on_gap or log_gap
        self._pid = os.getpid()
        self._merge = Merge(ordered=plan.ordered)
        self._sources: dict[str, _Source] = {}
        self._then: dict[int, tuple[Take, str]] = {}
        """Who takes the answer to what was asked, and of which topic it was asked."""
        self._runs: deque[Run] = deque()
        self._level = self._watermark = 0
        """The watermark once all of those are handed out, and the one by now."""
        self._round: _Round | None = None
        self._round_at = 0.0
        self._clock = 0
        self._list_at = 0.0
        # A client's own context ends with it, which would wait for a socket of a reading that is not resumed.
        self._own_context = None if pool.url.startswith("inproc:") else zmq.Context()
        self._closed = False
        self._one_by_one = chain.from_iterable(self.portions())
        self._questions = Questions(self._own_context or pool.context, pool.url, timeout)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        if plan.follow:
            self._questions.patience = math.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_questions"):
            self.close()

    def close(self) -> None:
        """Close the connection. Does nothing the second time."""
        closed, self._closed = self._closed, True
        if closed:
            return
        if os.getpid() != self._pid:
            _parents.append((self._questions, self._own_context))
            return
        self._questions.close()
        if self._own_context is not None:
            self._own_context.term()

    # -- for the application ----------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """The next record."""
        return next(self._one_by_one)

    def portions(self, every: float = math.inf) -> Iterator[list[Message]]:
        """The records, as many at once as may be handed out; nothing after `every` seconds of silence.

        Raises `NotFound` when a topic that was named is deleted, and what `on_gap` raises.
        """
        silent_until = time.monotonic() + every
        while not self._closed:
            self._check()
            self._take()
            now = time.monotonic()
            self._ask(now, every)  # so that it is on its way while these are looked at
            if self._runs:
                yield from self._handed_out()
                silent_until = time.monotonic() + every
            elif not self._sources and not self._plan.follow:
                return
            elif now >= silent_until:
                silent_until = now + every
                yield []
            else:
                self._hear(min(silent_until, self._due(now)) - now)

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
        """Records that came after a younger one of another topic, because the broker's clock stepped back."""
        return self._merge.late

    @property
    def waiting_for(self) -> dict[str, str]:
        """The topics that hold back the next record, each with the reason; none if no record is held back."""
        held = self._merge.held
        return {} if held is None else {name: self._why(name, held) for name in self._merge.behind(held)}

    def _why(self, name: str, held: int) -> str:
        source = self._sources.get(name)
        if not self._questions.connected:
            return f"no broker answers at {self._pool.url}"
        if source is not None and source.trouble is not None:
            return source.trouble.text
        if name == TO_COME:
            return "it is looked for new topics that match"
        if self._clock and self._clock < held:
            return f"the broker's clock is {(held - self._clock) / 1e6:.1f} s behind the next record"
        return "older records may be on their way"

    # -- which topics, and where they begin -------------------------------------------------------------

    def _begin(self) -> None:
        names = dict.fromkeys([*self._selection.names, *filter(self._selection.matches, self._names())])
        cursor = self._plan.cursor
        is_new = cursor is None or not cursor.topics
        ends: dict[str, Answer] = {}
        if is_new and self._plan.start is None:
            ends = self._answers({name: Fetch(after=POINTER_MAX) for name in names})
        if self._plan.follow and self._selection.has_patterns:
            self._merge.add(TO_COME)
        if not names and not self._plan.follow:
            raise error("unknown_topic", f"no topic matches {self._selection}")
        for name in names:
            reader = self._add(name, (self._plan.start or 0) if is_new else 0)
            reply = ends[name].reply if name in ends else None
            if isinstance(reply, Fetched):
                reader.go_to_end(reply)
            elif isinstance(reply, QuothError) and reply.code != "unknown_topic":
                raise reply
            if cursor is not None:
                cursor.begin(name, Position(reader.after, reader.log_id, reader.ordinal))

    def _names(self) -> list[str]:
        """The names of all topics, as far as there are patterns that they may match."""
        names: list[str] = []
        more = self._selection.has_patterns
        while more:
            reply = self._answers({"": ListTopics(after=names[-1] if names else "")})[""].reply
            if isinstance(reply, QuothError):
                raise reply
            assert isinstance(reply, Topics)
            names += reply.names
            more = len(reply.names) == NAMES_MAX
        self._list_at = time.monotonic() + LIST_S
        return names

    def _answers(self, requests: dict[str, Request]) -> dict[str, Answer]:
        """Ask all of that and wait for the answers, refusals included unless they pass by themselves."""
        deadline = deadline_in(self._timeout)
        asked = {self._questions.ask(request, name): name for name, request in requests.items()}
        answers: dict[str, Answer] = {}
        while asked:
            for answer in self._questions.hear(self._timeout):
                name = asked.pop(answer.correlation)
                refused = isinstance(answer.reply, QuothError) and answer.reply.code in RETRIED
                if refused and time.monotonic() < deadline:
                    time.sleep(BACKOFF_S)
                    asked[self._questions.ask(requests[name], name)] = name
                else:
                    answers[name] = answer
        return answers

    def _add(self, name: str, after: int) -> Reader:
        """Let a topic take part: from this cursor on, unless the cursor in the file knows better."""
        position = self._plan.cursor.position(name) if self._plan.cursor is not None else None
        self._merge.add(name)
        reader = Reader(name, after, lambda gap: self._merge.push(name, gap))
        if position is not None:
            reader.resume(*position)
        self._sources[name] = _Source(reader)
        return reader

    def _drop(self, name: str) -> None:
        """Nothing more comes of a topic."""
        del self._sources[name]
        self._merge.end(name)

    # -- asking and hearing -----------------------------------------------------------------------------

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise error("closed", "a reading stays with the process that began it", "begin one here")
        self._pool.context  # noqa: B018  # raises if the client was closed

    def _ask(self, now: float, every: float) -> None:
        """Ask for what is needed by now. every: seconds between two rounds while nothing is held back."""
        size = min(FETCH_BYTES, max(AT_HAND_BYTES // max(1, len(self._sources)), AT_HAND_BYTES_MIN))
        wait = WAIT_S if self._plan.follow else 0.0
        for name, source in self._sources.items():
            if not source.asked and source.again_at <= now and self._merge.needs(name):
                source.asked = True
                self._send(source.reader.question(wait, size), name, self._fetched, wait)
        if not self._plan.follow:
            return
        if self._selection.has_patterns and now >= self._list_at:
            self._list_at = math.inf
            self._send(ListTopics(), "", self._listed)
        round_at = self._round_at + (every if self._merge.held is None else 0.0)
        if self._plan.ordered and self._round is None and now >= round_at:
            self._round = _Round()
            self._send(Ping(), "", self._ponged)

    def _send(self, request: Request, topic: str, take: Take, wait: float = 0.0) -> None:
        self._then[self._questions.ask(request, topic, wait=wait)] = take, topic

    def _due(self, now: float) -> float:
        """When to ask for something at the latest."""
        due = min(now + LOOK_S, self._list_at)
        if self._round is None and self._merge.held is not None:
            due = min(due, self._round_at)
        return min([due, *(source.again_at for source in self._sources.values() if not source.asked)])

    def _hear(self, seconds: float) -> None:
        began = time.monotonic()
        answers = self._questions.hear(max(0.0, seconds))
        if self._round is not None:
            self._round.took += time.monotonic() - began
        for answer in answers:
            take, name = self._then.pop(answer.correlation)
            take(name, answer)

    def _take(self) -> None:
        """What may be handed out now, behind what was not wanted when it was handed out last."""
        self._runs.extend(self._merge.take())
        self._level = max(self._level, self._merge.watermark)
        if not self._runs:
            self._watermark = self._level

    def _handed_out(self) -> Iterator[list[Message]]:
        while self._runs:
            run = self._runs.popleft()
            if not self._runs:
                self._watermark = self._level
            if isinstance(run, Gap):
                self._on_gap(run)
            else:
                yield run

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
        now = time.monotonic()
        reader = source.reader
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
            self._send(ListTopics(), "", self._listed_in_round)
        else:
            self._describe_behind(self._round)

    def _listed_in_round(self, _: str, answer: Answer) -> None:
        if self._take_names(answer, self._listed_in_round):
            assert self._round is not None
            self._merge.settle(TO_COME, self._round.clock)
            self._describe_behind(self._round)

    def _describe_behind(self, round_: _Round) -> None:
        """Ask how the topics stand that hold back a record; without one, all that have nothing at hand."""
        held = self._merge.held
        round_.left.update(self._merge.behind(round_.clock if held is None else min(round_.clock, held)))
        round_.left.discard(TO_COME)
        for name in round_.left:
            self._send(DescribeTopic(), name, self._described)
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
            rest = max(ROUND_S, ROUND_REST * round_.took, min(ahead, LOOK_S))
            self._round, self._round_at = None, time.monotonic() + rest

    # -- new topics -------------------------------------------------------------------------------------

    def _listed(self, _: str, answer: Answer) -> None:
        if self._take_names(answer, self._listed):
            self._list_at = time.monotonic() + LIST_S

    def _take_names(self, answer: Answer, more: Take) -> bool:
        """Let new topics take part; True if that was the end of the list, else the rest is asked for."""
        if not isinstance(answer.reply, Topics):
            return True
        names = answer.reply.names
        for name in names:
            if name not in self._sources and self._selection.matches(name):
                self._add(name, 0)
        if len(names) == NAMES_MAX:
            self._send(ListTopics(after=names[-1]), "", more)
            return False
        return True


_parents: list[object] = []
"""Connections of a parent process: kept, because closing them here would disturb it."""
