"""Rounds of requests that find out up to which time no older record can come.

Records of several topics are handed out in order once each topic without any at hand is known to bring
nothing older. A round finds that out:

    ping        the broker's clock: T. A record that is appended later gets a pointer of at least T
    list        new topics that match a pattern take part from now on
    describe    each topic that has nothing at hand: once its newest visible record has come, and none waits
                for an fsync to become visible, it brings nothing at or below T any more

Rounds are made while a record is held back. The order relies on the broker's clock not to step back: a record
that comes with an older pointer nevertheless is handed out at once, and counted as late.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from quoth.core.adaptive_timeout import bounded
from quoth.core.request_state import BACKOFF_S
from quoth.merging.merge import TopicMerge
from quoth.reader import RecordReader
from quothwire.errors import NotFound, QuothError
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import DescribeTopic, Ping, Pong, Request, TopicInfo

ROUND_S, ROUND_REST, ROUND_REST_MAX_S = 0.005, 4, 0.5
"""The least seconds between two rounds; the pause after a round as a multiple of its duration, so that many
idle topics cost little, or until the broker's clock has reached the next record; and the longest pause: the
duration may contain an outage."""
TO_COME = ""
"""Stands for the topics that match a pattern and do not exist yet: a list of all topics settles them."""

Take = Callable[[str, Answer, float], None]
"""Processes the answer to a request about a topic, at a time."""
Ask = Callable[[Request, str, Take], None]
ListNames = Callable[[Callable[[float, bool], None]], None]
"""Requests the names of all topics, adds those that are new and match, and calls back: at a time, True if all
names came."""


@dataclass(slots=True)
class TopicSource:
    """A topic that is read.

    asked: a fetch is on its way. again_at, backoff: when to fetch again after an error, and the next pause.
    problem: the error since `refused_at`. standing: a time, and the pointer behind which nothing older
    comes.
    """

    reader: RecordReader
    asked: bool = False
    again_at: float = 0.0
    backoff: float = BACKOFF_S
    refused_at: float = 0.0
    problem: QuothError | None = None
    standing: tuple[int, int] | None = None

    def settle(self, merge: TopicMerge) -> None:
        """Settle the topic once everything has come that was there when `standing` was found out."""
        if self.standing is not None and self.reader.after >= self.standing[1]:
            merge.settle(self.reader.topic, self.standing[0])
            self.standing = None


class Rounds:
    """The rounds of one ordered read. Owned by one thread.

    ask: sends a request. list_names: finds new topics; None if there are no patterns.
    """

    def __init__(
        self, merge: TopicMerge, sources: dict[str, TopicSource], ask: Ask, list_names: ListNames | None
    ) -> None:
        self.clock = 0
        """The newest time of the broker's clock."""
        self._merge = merge
        self._sources = sources
        self._ask = ask
        self._list_names = list_names
        self._next_at = 0.0
        self._is_under_way = False
        self._took = 0.0
        """Seconds of waiting for the answers of this round."""
        self._clock = 0
        """The broker's clock at the beginning of this round, 0 if it is not known."""
        self._left: set[str] = set()
        """The topics that are not described yet."""

    @property
    def due(self) -> float:
        """The time of the next round; infinity while one is under way, or no record is held back."""
        return math.inf if self._is_under_way or self._merge.held is None else self._next_at

    def begin(self, now: float, every: float) -> None:
        """Begin a round if it is due. every: seconds between two rounds while no record is held back."""
        if not self._is_under_way and now >= self._next_at + (every if self._merge.held is None else 0.0):
            self._is_under_way, self._took, self._clock = True, 0.0, 0
            self._ask(Ping(), "", self._ponged)

    def waited(self, seconds: float) -> None:
        """Add to the duration of the round under way."""
        self._took += seconds

    def resent(self) -> None:
        """Forget the duration so far: a request was sent twice, so there was an outage."""
        self._took = 0.0

    def _ponged(self, _: str, answer: Answer, now: float) -> None:
        if isinstance(answer.reply, Pong):
            self.clock = self._clock = answer.reply.time
        if self._list_names is not None:
            self._list_names(self._listed)
        else:
            self._describe(now)

    def _listed(self, now: float, is_whole: bool) -> None:
        if is_whole:
            self._merge.settle(TO_COME, self._clock)
        self._describe(now)

    def _describe(self, now: float) -> None:
        """Ask about the topics that hold back a record; without one, about all that have nothing at hand."""
        held = self._merge.held
        self._left.update(self._merge.behind(self._clock if held is None else min(self._clock, held)))
        self._left.discard(TO_COME)
        for name in self._left:
            self._ask(DescribeTopic(), name, self._described)
        self._end(now)

    def _described(self, name: str, answer: Answer, now: float) -> None:
        source, reply = self._sources.get(name), answer.reply
        if source is not None:
            log = source.reader.log_id
            if isinstance(reply, TopicInfo) and reply.log == (log or reply.log):
                counters = reply.counters  # of an older broker under the former name
                if not counters.get("records_not_visible", counters.get("unseen_records")):
                    source.standing = self._clock, reply.last
            elif isinstance(reply, NotFound) and not source.reader.has_answered:
                source.standing = self._clock, 0
            source.settle(self._merge)
        self._left.discard(name)
        self._end(now)

    def _end(self, now: float) -> None:
        """End the round if all topics have answered."""
        if not self._left:
            ahead = ((self._merge.held or 0) - self._clock) / 1e6
            pause = bounded(max(ROUND_REST * self._took, ahead), ROUND_S, ROUND_REST_MAX_S)
            self._is_under_way, self._next_at = False, now + pause
