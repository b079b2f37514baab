"""The driver of a replay: workers stage chunks ahead, and it publishes them in their order.

    divide --> stage ahead, several at a time --> wait until due --> publish, if it is still the next one

A chunk is published only if the one before it is the newest version in the topic. Otherwise another run is at
work, or its last publication was in progress when this one began: then this run continues behind that
version. It does the same if staged parts are gone, or if a compaction has replaced the files that it reads.
So runs at the same time store no record twice, whatever the sizes of their chunks.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from typing import NamedTuple

from quoth.client import Client
from quoth.spark.replay.chunking import PARTS_A_CHUNK, Chunk, ChunkLimits
from quoth.spark.replay.inputs import ReplayInput, ReplayStream
from quoth.spark.replay.tasks import StagedChunkPart, stage
from quoth.spark.workers import Workers, perform
from quoth.transaction import Transaction
from quothwire.errors import Conflict, Disconnected, NotFound, QuothError
from quothwire.protocol.transaction import NEVER, VERSION_MAX

TRIES_MAX = 3
"""Attempts of a run without any progress of the topic, by this run or by another one."""
PROGRESS_S = 10.0
"""Seconds between two reports of progress."""
CHUNKS_AHEAD_MAX = 32
"""Half of the bytes that may be staged in a topic, by default."""
LATE_S = 2.0
"""Seconds that a replay may be late before it reports it."""
_SUPERSEDED = frozenset(("already_published", "forgotten_sequence", "newest_differs", "not_staged"))

Tell = Callable[[str], None]


class RateLimit:
    """Waits until records are due: its clock starts with the first ones.

    speed: seconds of original time that pass in one second. tell: called when the replay is late, and again
    when it is twice as late. clock, wait: replaced by tests.
    """

    def __init__(
        self,
        speed: float,
        tell: Tell,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.behind = 0.0
        """The largest delay so far, in seconds."""
        self._speed = speed
        self._tell = tell
        self._clock = clock
        self._wait = wait
        self._start: tuple[float, int] | None = None
        self._reported = LATE_S / 2

    @property
    def tick(self) -> int:
        """Microseconds of original time that pass in a second, and are published at once."""
        return max(1, round(self._speed * 1e6))

    def await_(self, time_us: int) -> None:
        """Return when records are due. time_us: their original time, in microseconds."""
        now = self._clock()
        if self._start is None:
            self._start = now, time_us
        started, first = self._start
        late = now - started - (time_us - first) / 1e6 / self._speed
        if late < 0:
            self._wait(-late)
            return
        self.behind = max(self.behind, late)
        if late >= 2 * self._reported:
            self._reported = late
            self._tell(f"it cannot keep up: {late:.1f} s behind a speed of {self._speed:g}")


@dataclass
class StreamTally:
    """The counts of one stream.

    began: the position behind which this run began, 0 for the first run. duplicates: records that were stored
    already when they were published. undecoded: records that were stored without their headers, because their
    topic could not decode these.
    """

    stream: ReplayStream
    began: int = 0
    chunks: int = 0
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    undecoded: int = 0


class StagedChunk(NamedTuple):
    """A chunk that is being staged."""

    stream: ReplayStream
    chunk: Chunk
    staged: Future[list[StagedChunkPart]]

    @property
    def version(self) -> int:
        """The version of its transaction."""
        return self.stream.version(self.chunk.until)

    def transaction(self, broker: Client) -> Transaction:
        """Its transaction."""
        return broker.transaction(self.stream.target, self.stream.application, self.version)


@dataclass
class Replayer:
    """Replays an input into topics of a broker. Belongs to one thread.

    broker: tasks use its url and its timeout, too. tell: called with each line for the user. key: the path of
    the key file of the tasks. tallies: the counts of each stream, by its application.
    """

    broker: Client
    source: ReplayInput
    workers: Workers
    tell: Tell
    limits: ChunkLimits = ChunkLimits()  # noqa: RUF009
    rate_limit: RateLimit | None = None
    key: str | None = None
    tallies: dict[str, StreamTally] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._next_report = time.monotonic() + PROGRESS_S

    @property
    def chunks(self) -> int:
        """The number of published chunks."""
        return sum(one.chunks for one in list(self.tallies.values()))

    def run(self, streams: list[ReplayStream] | None = None) -> None:
        """Replay the records that are not in the topics yet. streams: those of the input, if they are known.

        Raises as the input's `streams`, `Disconnected`, `BrokerFailure`, `Unavailable`, and as `tasks.stage`.
        Published chunks stay, and the next run continues behind them.
        """
        tries, before = 0, None
        while True:
            try:
                return self._pass(streams or self.source.streams())
            except (_Superseded, FileNotFoundError) as problem:
                streams, seen = None, dict(self._newest)
                tries = tries + 1 if seen == before else 1
                before = seen
                if tries == TRIES_MAX:
                    raise problem.__cause__ or problem from None
                self.tell(f"{problem}; it goes on behind what is there")

    def _pass(self, streams: list[ReplayStream]) -> None:
        """Stage and publish all chunks that are left."""
        room = min(self.workers.slots // PARTS_A_CHUNK + 2, CHUNKS_AHEAD_MAX)
        pool = ThreadPoolExecutor(room, "quoth-staging")
        ahead: deque[StagedChunk] = deque()
        try:
            for stream, chunk in self._left(streams):
                ahead.append(StagedChunk(stream, chunk, pool.submit(self._stage, stream, chunk)))
                while len(ahead) >= room:
                    self._publish(ahead)
            while ahead:
                self._publish(ahead)
        except (_Superseded, Disconnected):  # another run needs the parts, or no broker answers
            raise
        except BaseException:
            pool.shutdown(cancel_futures=True)
            with suppress(QuothError):  # the broker removes staged parts after a day
                for one in ahead:
                    one.transaction(self.broker).abort()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _left(self, streams: list[ReplayStream]) -> Iterator[tuple[ReplayStream, Chunk]]:
        """The chunks that are not published, in the order in which they are due."""
        origins = [self._in_order(list(same)) for _, same in groupby(streams, lambda one: one.origin)]
        if self.rate_limit is None:
            return chain.from_iterable(origins)
        return heapq.merge(*origins, key=lambda item: item[1].time)

    def _in_order(self, streams: list[ReplayStream]) -> Iterator[tuple[ReplayStream, Chunk]]:
        tick = None if self.rate_limit is None else self.rate_limit.tick
        for stream in streams:
            newest = newest_version(self.broker, stream)
            began = stream.position(newest)
            self.tallies.setdefault(stream.application, StreamTally(stream, began))
            self._newest[stream.application] = newest
            for chunk in stream.chunks(self.limits, tick, began):
                yield stream, chunk

    def _stage(self, stream: ReplayStream, chunk: Chunk) -> list[StagedChunkPart]:
        broker, version = self.broker, stream.version(chunk.until)
        work = partial(stage, broker.url, broker.timeout, self.key, replace(stream, groups=()), version)
        return perform(self.workers, work, list(enumerate(chunk.parts)), broker.url)

    def _publish(self, ahead: deque[StagedChunk]) -> None:
        """Publish the first chunk once it is staged and due."""
        stream, chunk, _ = ready = ahead[0]
        try:
            staged = ready.staged.result()
            if self.rate_limit is not None:
                self.rate_limit.await_(chunk.time)
            parts = [one.part for one in staged if one.part.records]
            if parts:
                newest = self._newest[stream.application]
                ack = ready.transaction(self.broker).publish(parts, newest=newest)
                self._newest[stream.application] = ready.version
        except Conflict as problem:
            if problem.code not in _SUPERSEDED:
                raise
            raise _Superseded(f"{stream.target!r}: {problem.text}") from problem
        ahead.popleft()
        if parts:
            tally = self.tallies[stream.application]
            tally.chunks += 1
            tally.records += ack.count
            tally.bytes += sum(one.bytes for one in staged)
            tally.undecoded += sum(one.undecoded for one in staged)
            tally.duplicates += ack.count if ack.duplicate else 0
            self._report_progress(tally, chunk)

    def _report_progress(self, tally: StreamTally, chunk: Chunk) -> None:
        """Report progress once in `PROGRESS_S`."""
        if time.monotonic() >= self._next_report:
            self._next_report = time.monotonic() + PROGRESS_S
            stream = tally.stream
            self.tell(f"{stream.target}: {tally.records:,} records, up to {stream.place(chunk.until)}")


def newest_version(broker: Client, stream: ReplayStream) -> int:
    """The newest published version of a stream, -1 if there is none."""
    asked = broker.transaction(stream.target, stream.application, VERSION_MAX)  # lower ones may be forgotten
    try:
        return asked.status().newest_version
    except NotFound:
        return NEVER


class _Superseded(Exception):
    """Raised if staged parts are of no use: another run has published them, or they are gone."""
