"""Records of several topics in the order of their time: the merge alone, without sockets and clocks.

Each topic's records come in order, so the oldest of all at hand may be handed out as soon as every topic that
has none at hand is known to have nothing older to come. Whoever reads the topics tells that with `settle`.

    topic a   1 . . 4 5          at hand          what is handed out: 1 3 4, then nothing, since c
    topic b   . . 3 . . 8        at hand          might still bring something between 4 and 5
    topic c   settled up to 4

Equal pointers go by the topics' names, so the order is the same whenever the same topics are merged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from heapq import heappop, heappush
from operator import attrgetter

from quoth.batch import Batch
from quoth.message import Gap, Message
from quothwire.pointer import POINTER_MAX

_pointer = attrgetter("pointer")

Run = list[Message] | Gap
"""Records that follow one another, or a gap where it belongs: before what comes after it."""


class TopicMerge:
    """What is at hand of several topics. Owned by one thread.

    ordered: else records are handed out as they come, of those at hand the oldest first. late: records that
    were handed out after a younger one, because something had been settled that was not so.
    """

    def __init__(self, *, ordered: bool) -> None:
        self.late = 0
        self._newest = 0
        self._ordered = ordered
        self._sources: dict[str, _Source] = {}

    def add(self, topic: str) -> None:
        """From now on this topic takes part; nothing is known of what it may bring."""
        source = self._sources.setdefault(topic, _Source(topic))
        source.ended = False
        source.settled = max(source.settled, 0 if self._ordered else POINTER_MAX)

    def push(self, topic: str, found: Batch | Gap) -> None:
        """What comes next of a topic is at hand."""
        self._sources[topic].waiting.append(found)

    def settle(self, topic: str, pointer: int) -> None:
        """Nothing of a topic comes any more at or below a pointer, but for what is at hand."""
        source = self._sources[topic]
        source.settled = max(source.settled, pointer)

    def end(self, topic: str) -> None:
        """Nothing of a topic comes any more. What is at hand is still handed out."""
        self._sources[topic].ended = True

    def needs(self, topic: str) -> bool:
        """Is nothing of a topic at hand?"""
        return not self._sources[topic].is_at_hand

    def take(self) -> list[Run]:
        """What may be handed out by now, in order."""
        runs: list[Run] = []
        heads: list[tuple[int, str, _Source]] = []
        bound = POINTER_MAX
        for source in self._sources.values():
            bound = min(bound, self._look(source, heads, runs))
        while heads and heads[0][0] <= bound:
            _, name, source = heappop(heads)
            until = bound
            if heads:
                until = min(until, heads[0][0] - (heads[0][1] < name))
            self._hand_out(source.upto(until), runs)
            bound = min(bound, self._look(source, heads, runs))
        for name in [name for name, source in self._sources.items() if source.is_over]:
            del self._sources[name]
        return runs

    @property
    def held(self) -> int | None:
        """The pointer of the oldest record at hand that is held back, None if none is."""
        return min((source.head for source in self._sources.values() if source.has_head), default=None)

    @property
    def watermark(self) -> int:
        """Up to this pointer everything has been handed out."""
        return min((source.bound for source in self._sources.values()), default=0)

    def behind(self, pointer: int) -> list[str]:
        """The topics that might still bring something at or below a pointer."""
        return [name for name, source in self._sources.items() if source.bound < pointer and self.needs(name)]

    def _look(self, source: _Source, heads: list[tuple[int, str, _Source]], runs: list[Run]) -> int:
        """Put what a topic has next among the heads; returns the bound that it sets if it has nothing."""
        while source.look():
            runs.append(source.gap())
        if source.has_head:
            heappush(heads, (source.head, source.topic, source))
            return POINTER_MAX
        return source.bound

    def _hand_out(self, run: list[Message], runs: list[Run]) -> None:
        if self._ordered:
            self.late += bisect_right(run, self._newest - 1, key=_pointer)
        self._newest = max(self._newest, run[-1].pointer)
        if runs and isinstance(runs[-1], list):
            runs[-1] += run
        else:
            runs.append(run)


class _Source:
    """What is at hand of one topic: messages that are made already, from a row on, and what follows them."""

    __slots__ = ("ended", "messages", "row", "settled", "topic", "waiting")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.waiting: deque[Batch | Gap] = deque()
        self.messages: list[Message] = []
        self.row = 0
        self.settled = 0
        self.ended = False

    @property
    def has_head(self) -> bool:
        """Is there a message that has been made?"""
        return self.row < len(self.messages)

    @property
    def is_at_hand(self) -> bool:
        """Is there a record, or anything that has not been looked at?"""
        return self.has_head or bool(self.waiting)

    @property
    def is_over(self) -> bool:
        """Will there never be anything more?"""
        return self.ended and not self.is_at_hand

    @property
    def head(self) -> int:
        """The pointer of the next record."""
        return self.messages[self.row].pointer

    @property
    def bound(self) -> int:
        """Everything up to this pointer has been handed out."""
        if self.has_head:
            return self.head - 1
        return POINTER_MAX if self.ended else self.settled

    def look(self) -> bool:
        """Make the next messages if those at hand are used up; True if a gap comes before any message."""
        while self.waiting and not self.has_head:
            found = self.waiting[0]
            if isinstance(found, Gap):
                return True
            self.waiting.popleft()
            self.messages, self.row = list(found), 0
        return False

    def gap(self) -> Gap:
        """The gap that comes next."""
        gap = self.waiting.popleft()
        assert isinstance(gap, Gap)
        return gap

    def upto(self, pointer: int) -> list[Message]:
        """The next records, up to this pointer."""
        row, self.row = self.row, bisect_right(self.messages, pointer, lo=self.row, key=_pointer)
        run = self.messages[row : self.row]
        self.settled = max(self.settled, run[-1].pointer)
        return run
