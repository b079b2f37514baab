"""The merge of several topics in the order of time. Uses no socket and no clock.

Each topic's records come in order, so the oldest of all at hand may be handed out as soon as no topic without
any at hand can bring an older one. The caller says so with `settle`.

    topic a   1 . . 4 5          at hand          handed out: 1 3 4, then nothing, since c
    topic b   . . 3 . . 8        at hand          may still bring something between 4 and 5
    topic c   settled up to 4

Equal pointers are ordered by the topics' names, so the same topics always give the same order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from operator import attrgetter

from quoth.batch import Batch
from quoth.message import Gap, Message
from quothwire.pointer import POINTER_MAX

_pointer = attrgetter("pointer")

Run = list[Message] | Gap
"""Records that follow one another, or a gap, which comes before the records behind it."""


class TopicMerge:
    """The records at hand of several topics. Owned by one thread.

    ordered: in the order of time; else records are handed out as they come, the oldest at hand first. late:
    the number of records that were handed out after a younger one, because their topic had been settled too
    far.
    """

    def __init__(self, *, ordered: bool) -> None:
        self.late = 0
        self._newest = 0
        self._ordered = ordered
        self._sources: dict[str, _Source] = {}

    def add(self, topic: str) -> None:
        """Add a topic, which may bring any record."""
        source = self._sources.setdefault(topic, _Source(topic))
        source.ended = False
        source.settled = max(source.settled, 0 if self._ordered else POINTER_MAX)

    def push(self, topic: str, found: Batch | Gap) -> None:
        """Add the next batch or gap of a topic."""
        self._sources[topic].waiting.append(found)

    def settle(self, topic: str, pointer: int) -> None:
        """Note that nothing more of a topic comes at or below a pointer, beside what is at hand."""
        source = self._sources[topic]
        source.settled = max(source.settled, pointer)

    def end(self, topic: str) -> None:
        """Note the end of a topic. Its records at hand are still handed out."""
        self._sources[topic].ended = True

    def needs(self, topic: str) -> bool:
        """Return True if nothing of a topic is at hand."""
        return not self._sources[topic].is_at_hand

    def take(self) -> list[Run]:
        """Return what may be handed out by now, in order."""
        runs: list[Run] = []
        heads: list[tuple[int, str, _Source]] = []
        bound = POINTER_MAX
        for source in self._sources.values():
            bound = min(bound, self._open_next(source, heads, runs))
        while heads and heads[0][0] <= bound:
            _, name, source = heappop(heads)
            until = bound
            if heads:
                until = min(until, heads[0][0] - (heads[0][1] < name))
            self._hand_out(source.upto(until), runs)
            bound = min(bound, self._open_next(source, heads, runs))
        for name in [
            name for name, source in self._sources.items() if source.ended and not source.is_at_hand
        ]:
            del self._sources[name]
        return runs

    @property
    def held(self) -> int | None:
        """The pointer of the oldest record at hand that is held back, None if none is."""
        return min((source.head for source in self._sources.values() if source.has_head), default=None)

    @property
    def watermark(self) -> int:
        """The pointer up to which everything was handed out."""
        return min((source.bound for source in self._sources.values()), default=0)

    def behind(self, pointer: int) -> list[str]:
        """Return the topics that may still bring something at or below a pointer."""
        return [name for name, source in self._sources.items() if source.bound < pointer and self.needs(name)]

    def _open_next(self, source: _Source, heads: list[tuple[int, str, _Source]], runs: list[Run]) -> int:
        """Add a topic's next record to the heads; returns the pointer up to which it allows records."""
        runs.extend(source.open_next())
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
    """The records at hand of one topic: messages from a row on, and the batches and gaps behind them."""

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
        """True if the next record is a message already."""
        return self.row < len(self.messages)

    @property
    def is_at_hand(self) -> bool:
        """True if there is a record, a batch or a gap."""
        return self.has_head or bool(self.waiting)

    @property
    def head(self) -> int:
        """The pointer of the next record."""
        return self.messages[self.row].pointer

    @property
    def bound(self) -> int:
        """The pointer up to which everything was handed out."""
        if self.has_head:
            return self.head - 1
        return POINTER_MAX if self.ended else self.settled

    def open_next(self) -> Iterator[Gap]:
        """Make the messages of the next batch if there are none; yields the gaps in front of it."""
        while self.waiting and not self.has_head:
            found = self.waiting.popleft()
            if isinstance(found, Gap):
                yield found
            else:
                self.messages, self.row = list(found), 0

    def upto(self, pointer: int) -> list[Message]:
        """Remove and return the next records, up to a pointer."""
        row, self.row = self.row, bisect_right(self.messages, pointer, lo=self.row, key=_pointer)
        run = self.messages[row : self.row]
        self.settled = max(self.settled, run[-1].pointer)
        return run
