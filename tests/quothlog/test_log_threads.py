"""Reading in other threads: sealed segments are read by anyone while the owner writes, rolls and removes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from kit.disk.logs import encoded, fill, put, segments
from quothlog import Log, LogOptions
from quothlog.reading.read_request import ReadRequest
from quothlog.reading.segment_reader import Extract
from quothlog.sealed import VIEWS_MAX
from quothlog.segment import Segment
from quothlog.storage.filesystem import PosixFileSystem
from quothwire import batch

OpenLog = Callable[..., Log]


class Restless(Segment):
    """A segment that another thread lets rest at the very moment at which it has been loaded."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "kept_view" and value is not None:
            self.rest()


def test_segment_may_be_let_rest_at_any_moment_of_a_read(open_log: OpenLog, directory: Path) -> None:
    """A request that races with going to sleep is served."""
    log = open_log()
    told = fill(log, 3)
    log.roll()
    path = segments(directory)[0]
    restless = Restless(PosixFileSystem(), directory, int(path.stem), log.log_id, path.stat().st_size)
    restless.keep()
    found = ReadRequest(restless, None, 0, 0, 10, 10_000).read()
    assert found is not None
    assert found.next == told[-1].pointer
    assert restless.kept_view is None


def test_readers_in_other_threads_get_what_was_written(open_log: OpenLog) -> None:
    """An extract is whole batches, or its segment is gone, whatever the owner does meanwhile."""
    log = open_log(options=LogOptions(count_limit=20))
    asked: SimpleQueue[ReadRequest | None] = SimpleQueue()
    answered: SimpleQueue[tuple[ReadRequest, Extract | Exception | None]] = SimpleQueue()

    def read() -> None:
        while (place := asked.get()) is not None:
            try:
                answered.put((place, place.read()))
            except Exception as problem:
                answered.put((place, problem))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    lookups, first = 0, 0
    for i in range(2_000):
        (appended,) = put(log, encoded([b"%d" % i] * (i % 3 + 1)))
        first = first or appended.first
        place = log.lookup(first - 1 + (appended.first - first) * (i % 7) // 7, bytes_max=2_000)
        if place is not None and place.sealed:
            lookups += 1
            asked.put(place)
        if i % 50 == 49:
            log.rest()
        if i % 300 == 299:
            log.trim(first + (appended.first - first) // 2)
    for _ in readers:
        asked.put(None)
    for reader in readers:
        reader.join()
    gone = 0
    for _ in range(lookups):
        place, found = answered.get()
        if found is None:
            gone += 1
            continue
        assert isinstance(found, Extract), found
        headers = [batch.check(raw, log.log_id) for raw in batch.split(found.data, log.log_id)]
        assert headers[0].last > place.after
        assert headers[-1].last == found.next <= place.beyond
    assert lookups > 1_000
    assert gone < lookups / 2


def test_readers_that_come_late_leave_no_more_open_than_is_kept(open_log: OpenLog) -> None:
    """The owner may have let a segment rest between the lookup and the reading of another thread."""
    log = open_log(options=LogOptions(count_limit=1))
    told = fill(log, 3 * VIEWS_MAX)
    lookups = [log.lookup(record.pointer - 1) for record in told]
    for lookup in lookups:
        assert lookup is not None
        assert lookup.read() is not None
    assert log.info().states.count("r") == VIEWS_MAX
    log.rest()
    assert log.info().states.count("r") == 0
