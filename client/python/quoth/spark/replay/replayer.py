"""The driver of a replay: chunks are staged ahead by the workers, and published in their order.

    cut --> staged ahead, several at a time --> due? --> published, if it is still the next one

A chunk is published only if the one before it is the newest in the topic. If it is not, another run is at
work, or a publication was under way when this one began: then it goes on behind that. It does the same when
what it has staged is gone, or a compaction has replaced the files that it was reading. So runs at the same
time store nothing twice, however each of them cuts.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from types import TracebackType
from typing import NamedTuple, Self

from quoth.client import Client
from quoth.spark.replay.chunking import PARTS_A_CHUNK, Chunk, ChunkLimits
from quoth.spark.replay.inputs import ReplayInput, ReplayStream
from quoth.spark.replay.rate_limit import RateLimit
from quoth.spark.replay.tasks import Destination, StagedChunkPart, stage
from quoth.spark.workers import Workers, perform
from quoth.transaction import Transaction
from quothwire.errors import Conflict, Disconnected, NotFound, QuothError
from quothwire.protocol.transaction import NEVER, VERSION_MAX

TRIES_MAX = 3
"""How often a run begins again although nothing was published meanwhile, by it or by another one."""
PROGRESS_S = 10.0
"""How often it is told how far a replay is."""
CHUNKS_AHEAD_MAX = 32
"""Half of what a topic may hold of staged bytes, by default."""
_PASSED = frozenset(("already_published", "forgotten_sequence", "newest_differs", "not_staged"))

Tell = Callable[[str], None]


@dataclass
class StreamTally:
    """What was done with the records of one stream. began: the position behind which this run began, 0 if
    nothing was replayed before. duplicates: records that were stored already when they were published.
    undecoded: records that were stored without their headers, because their topic could not decode these."""

    stream: ReplayStream
    began: int = 0
    chunks: int = 0
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    undecoded: int = 0


@dataclass
class ReplayTally:
    """What was done. behind: the most seconds that it was late."""

    streams: dict[str, StreamTally] = field(default_factory=dict)
    behind: float = 0.0

    @property
    def chunks(self) -> int:
        """Chunks that were published."""
        return sum(one.chunks for one in self.streams.values())

    def of(self, stream: ReplayStream, began: int) -> StreamTally:
        """That of a stream; began counts if it is a new one."""
        return self.streams.setdefault(stream.application, StreamTally(stream, began))


class StagedChunk(NamedTuple):
    """A chunk that is being staged."""

    stream: ReplayStream
    chunk: Chunk
    staged: Future[list[StagedChunkPart]]

    @property
    def version(self) -> int:
        """That of its transaction."""
        return self.stream.version(self.chunk.until)


class Replayer:
    """Replays an input into topics of a broker. Belongs to one thread.

    broker: tasks have its url and its timeout, too. tell: gets what a person should know, line by line.
    speed: see `RateLimit`; None for as fast as it goes.
    """

    def __init__(
        self,
        broker: Client,
        source: ReplayInput,
        workers: Workers,
        tell: Tell,
        *,
        limits: ChunkLimits = ChunkLimits(),  # noqa: B008
        speed: float | None = None,
    ) -> None:
        self.tally = ReplayTally()
        self._broker = broker
        self._source = source
        self._workers = workers
        self._tell = tell
        self._limits = limits
        self._pace = None if speed is None else RateLimit(speed, tell)
        self._newest: dict[str, int] = {}
        self._next_word = time.monotonic() + PROGRESS_S

    def run(self, streams: list[ReplayStream] | None = None) -> None:
        """Replay what is not in the topics yet. streams: the input's, if they are known already.

        Raises as the input's `streams`, `Disconnected`, `BrokerFailure`, `Unavailable`, and as `tasks.stage`.
        What was published before stays, and the next run goes on behind it.
        """
        tries, before = 0, None
        while True:
            try:
                return self._pass(streams or self._source.streams())
            except (_Passed, FileNotFoundError) as problem:
                streams, seen = None, dict(self._newest)
                tries = tries + 1 if seen == before else 1
                before = seen
                if tries == TRIES_MAX:
                    raise problem.__cause__ or problem from None
                self._tell(f"{problem}; it goes on behind what is there")

    def _pass(self, streams: list[ReplayStream]) -> None:
        """One time through all that is left."""
        with _Ahead(self._broker, self._workers) as ahead:
            for stream, chunk in self._left(streams):
                ahead.put(stream, chunk, partial(self._stage, stream, chunk))
                while ahead.is_full:
                    self._publish(ahead)
            while ahead.ready:
                self._publish(ahead)

    def _left(self, streams: list[ReplayStream]) -> Iterator[tuple[ReplayStream, Chunk]]:
        """The chunks that are not published, in the order in which they are due."""
        lines = [self._in_order(list(same)) for _, same in groupby(streams, lambda one: one.origin)]
        if self._pace is None:
            return (item for line in lines for item in line)
        return heapq.merge(*lines, key=lambda item: item[1].time)

    def _in_order(self, streams: list[ReplayStream]) -> Iterator[tuple[ReplayStream, Chunk]]:
        tick = None if self._pace is None else self._pace.tick
        for stream in streams:
            newest = newest_version(self._broker, stream)
            began = stream.position(newest)
            self.tally.of(stream, began)
            self._newest[stream.application] = newest
            for chunk in stream.chunks(self._limits, tick):
                left = chunk.behind(began)
                if left is not None:
                    yield stream, left

    def _stage(self, stream: ReplayStream, chunk: Chunk) -> list[StagedChunkPart]:
        destination = Destination(
            self._broker.url,
            self._broker.timeout,
            stream.target,
            stream.application,
            stream.version(chunk.until),
            stream.columns,
        )
        parts = list(enumerate(chunk.parts))
        return perform(self._workers, partial(stage, destination), parts, destination.url)

    def _publish(self, ahead: _Ahead) -> None:
        """Publish the first chunk once it is staged and due."""
        stream, chunk, _ = ready = ahead.ready[0]
        try:
            staged = ready.staged.result()
            self._wait_for(chunk)
            parts = [one.part for one in staged if one.part.records]
            if parts:
                newest = self._newest[stream.application]
                ack = transaction_of(self._broker, ready).publish(parts, newest=newest)
                self._newest[stream.application] = ready.version
        except Conflict as problem:
            if problem.code not in _PASSED:
                raise
            raise _Passed(f"{stream.target!r}: {problem.text}") from problem
        ahead.ready.popleft()
        if parts:
            told = self.tally.of(stream, 0)
            told.chunks += 1
            told.records += ack.count
            told.bytes += sum(one.bytes for one in staged)
            told.undecoded += sum(one.undecoded for one in staged)
            told.duplicates += ack.count if ack.duplicate else 0
            self._tell_progress(told, chunk)

    def _wait_for(self, chunk: Chunk) -> None:
        """Return when a chunk is due; the clock of a pace starts with the first that could be published."""
        if self._pace is not None:
            self._pace.await_(chunk.time)
            self.tally.behind = self._pace.behind

    def _tell_progress(self, told: StreamTally, chunk: Chunk) -> None:
        """Say now and then how far it is."""
        if time.monotonic() >= self._next_word:
            self._next_word = time.monotonic() + PROGRESS_S
            stream = told.stream
            self._tell(f"{stream.target}: {told.records:,} records, up to {stream.place(chunk.until)}")


def newest_version(broker: Client, stream: ReplayStream) -> int:
    """The newest version that is published of a stream, -1 if there is none."""
    asked = broker.transaction(stream.target, stream.application, VERSION_MAX)  # of others it may not tell
    try:
        return asked.status().newest_version
    except NotFound:
        return NEVER


def transaction_of(broker: Client, ready: StagedChunk) -> Transaction:
    """The transaction that a chunk is."""
    stream = ready.stream
    return broker.transaction(stream.target, stream.application, ready.version)


class _Passed(Exception):
    """What was staged is of no use any more: the topic has gone on, or it is gone."""


class _Ahead:
    """The chunks that are being staged, in their order. Left with an error, what they have staged is removed,
    unless it is only staged again, or nobody is there to do it.

    ready: to be taken from its left end, once published.
    """

    def __init__(self, broker: Client, workers: Workers) -> None:
        self.ready: deque[StagedChunk] = deque()
        self._broker = broker
        self._room = min(workers.slots // PARTS_A_CHUNK + 2, CHUNKS_AHEAD_MAX)
        self._pool = ThreadPoolExecutor(self._room, "quoth-staging")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        if isinstance(value, _Passed | Disconnected):  # staged by another run, too; or gone
            return
        with suppress(QuothError):  # what stays is removed by the broker after a day
            for one in self.ready:
                transaction_of(self._broker, one).abort()

    @property
    def is_full(self) -> bool:
        """Is as much staged ahead as may be?"""
        return len(self.ready) >= self._room

    def put(self, stream: ReplayStream, chunk: Chunk, work: Callable[[], list[StagedChunkPart]]) -> None:
        """Let a chunk be staged behind the others."""
        self.ready.append(StagedChunk(stream, chunk, self._pool.submit(work)))
