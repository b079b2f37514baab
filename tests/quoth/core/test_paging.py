"""Reads page by page, without a broker: their results, their fetches, and the readers that are kept."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from weakref import ref

import pytest

from kit.scale import times
from quoth import Gap, Message
from quoth.core import paging
from quoth.core.paging import KEPT_MAX, KEPT_S, PageReader, ReadAhead, ReadOptions
from quoth.core.request_state import ClientCall, RequestState
from quothwire import batch
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Fetch, Fetched

LOG = 8
DAMAGED = b"damaged"


class Log:
    """Batches with gaps between their pointers. Answers fetches. sent: the records of each answer."""

    def __init__(self, rng: random.Random, sizes: Sequence[int]) -> None:
        self.rng = rng
        self.batches: list[tuple[int, int, bytes]] = []
        self.messages: list[Message] = []
        self.sent: list[int] = []
        for size in sizes:
            self.append([b"%d" % rng.randrange(1_000) for _ in range(size)])

    @property
    def newest(self) -> int:
        """The newest pointer."""
        return self.messages[-1].pointer if self.messages else 0

    def append(self, values: list[bytes]) -> None:
        """Append a batch. A body of which a value is `DAMAGED` does not match its checksum."""
        first = self.newest + self.rng.choice((1, 1, 5, 1_000))
        ordinal = len(self.messages)
        raw = batch.encode(values)
        header = batch.parse_header(raw, 0).placed(first, ordinal)
        body = raw[batch.HEADER_BYTES :].replace(DAMAGED, DAMAGED.upper())
        self.batches.append((first, ordinal, batch.stamp(header, LOG) + body))
        self.messages += [Message("t", first + row, value, None, {}) for row, value in enumerate(values)]

    def answer(self, fetch: Fetch) -> Answer:
        """Return the batches from a cursor on: one, then as many as the limit on records allows."""
        payload, records, following = b"", 0, fetch.after
        for first, ordinal, stored in self.batches:
            last = first + batch.parse_header(stored, LOG).records - 1
            if last <= fetch.after:
                continue
            wanted = last - max(first - 1, fetch.after)
            if payload and records + wanted > fetch.records_max:
                break
            payload, records, following = payload + stored, records + wanted, last
            assert ordinal >= 0
        self.sent.append(records)
        reply = Fetched(LOG, following, self.newest, 0, len(self.messages))
        return Answer(0, reply, payload)


def fetch_of(request: RequestState) -> Fetch:
    """Return the fetch of a request."""
    fetch = request._request
    assert isinstance(fetch, Fetch)
    return fetch


def options(
    after: int = 0, limit: int = 10, *, end: int = POINTER_MAX, is_time: bool = False, topic: str = "t"
) -> ReadOptions:
    """The arguments of a read."""
    return ReadOptions(topic, after, is_time, end, limit, 0.0, None)


class Clock:
    """A clock in place of the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """The time that the test sets."""
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the page readers."""
    clock = Clock()
    monkeypatch.setattr(paging, "time", clock)
    return clock


class Reads:
    """A client without connections. freed: the places of readers that were dropped."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.freed: list[object] = []
        self.ahead = ReadAhead(self.freed.append)
        self.answers: dict[RequestState, Answer] = {}

    def read(self, given: ReadOptions, meanwhile: Callable[[], None] = lambda: None) -> list[Message]:
        """Read as a client does. meanwhile: called before the page is returned."""
        with self.ahead.reader_of(given) as reader:
            if reader.goes_on and reader.place is None:
                reader.place = object()
            found = self.drive(reader.read(given, 1.0))
            if (ahead := reader.send_ahead()) is not None:
                self.answers[ahead] = self.log.answer(fetch_of(ahead))
            meanwhile()
        return found

    def drive(self, call: ClientCall[Sequence[Message]]) -> list[Message]:
        """Return the result of a read. A request that was sent ahead has been answered already."""
        try:
            request = next(call)
            while True:
                answer = self.answers.pop(request, None)
                request = call.send(answer or self.log.answer(fetch_of(request)))
        except StopIteration as end:
            return list(end.value)


def test_pages_of_any_size_have_each_record_once_also_those_published_meanwhile(
    seed: int, rng: random.Random
) -> None:
    for _ in range(times(300, 30_000)):
        log = Log(rng, [rng.choice((1, 2, 3, 50)) for _ in range(rng.randrange(40))])
        reads, after = Reads(log), 0
        label = f"QUOTH_SEED={seed}"
        for _ in range(rng.randrange(60)):
            if rng.random() < 0.3:
                log.append([b"new"] * rng.choice((1, 7)))
            if rng.random() < 0.1:
                after = rng.choice([0, *(message.pointer for message in log.messages)])
            if rng.random() < 0.1:
                reads.ahead.clear()
            limit = rng.choice((0, 1, 2, 3, 10, 100))
            end = rng.choice([POINTER_MAX] * 5 + [after, *(one.pointer for one in log.messages[-3:])])
            above = [one for one in log.messages if after < one.pointer <= end]
            found = reads.read(options(after, limit, end=end))
            assert found == above[:limit], f"{label}: after {after}, limit {limit}, end {end}"
            after = found[-1].pointer if found else after


def test_each_fetch_brings_twice_as_many_records(rng: random.Random, clock: Clock) -> None:
    """Three times as many are fetched in vain as were read, at the most."""
    log = Log(rng, [1] * 600)
    reads, after = Reads(log), 0
    for page in range(1, 30):
        after = reads.read(options(after, 10))[-1].pointer
        assert sum(log.sent) <= 4 * 10 * page
    assert log.sent[:5] == [10, 20, 20, 40, 80], "the second page fetches 20, and 20 for what follows"


def test_fetches_of_a_slow_reader_do_not_grow(rng: random.Random, clock: Clock) -> None:
    log = Log(rng, [1] * 600)
    reads, after = Reads(log), 0
    for _ in range(30):
        after = reads.read(options(after, 10))[-1].pointer
        clock.now += KEPT_S / 3
    assert max(log.sent) <= 20


def test_no_record_is_returned_that_was_fetched_long_ago(rng: random.Random, clock: Clock) -> None:
    """However short the pauses are: a broker may have removed it since."""
    log = Log(rng, [1] * 3_000)
    reads, after = Reads(log), 0
    for _ in range(40):
        after = reads.read(options(after, 10))[-1].pointer
    log.messages, log.batches = log.messages[-1:], log.batches[-1:]  # the newest record alone is left
    began = clock.now
    while (found := reads.read(options(after, 10))) != log.messages:
        after = found[-1].pointer
        clock.now += KEPT_S / 4
    assert clock.now - began <= KEPT_S


def test_the_end_of_a_topic_is_fetched_once(rng: random.Random) -> None:
    log = Log(rng, [10, 10])
    reads = Reads(log)
    after = reads.read(options(0, 10))[-1].pointer
    assert reads.read(options(after, 100)) == log.messages[10:]
    assert log.sent == [10, 10, 0]


def test_a_reader_that_is_in_use_while_all_are_dropped_is_not_kept(rng: random.Random) -> None:
    reads = Reads(Log(rng, [10]))
    reads.read(options(0, 5), meanwhile=reads.ahead.clear)
    assert not reads.ahead._kept


def test_a_reader_with_large_batches_is_not_kept(rng: random.Random) -> None:
    log = Log(rng, [])
    log.append([bytes(2**22)] * 2)
    reads = Reads(log)
    reads.read(options(0, 1))
    assert not reads.ahead._kept


def test_two_reads_that_end_at_one_place_leave_one_reader(rng: random.Random) -> None:
    log = Log(rng, [1] * 20)
    reads = Reads(log)
    after = reads.read(options(0, 5))[-1].pointer

    def another() -> None:
        with reads.ahead.reader_of(options(log.messages[6].pointer, 3)) as reader:
            reader.place = "another"
            reads.drive(reader.read(options(limit=3), 1.0))

    reads.read(options(after, 5), meanwhile=another)
    assert len(reads.freed) == len(reads.ahead._kept) == 1


def test_a_kept_reader_does_not_keep_what_gaps_were_reported_to(rng: random.Random) -> None:
    """A method of an object that has the client would make a cycle."""

    class Owner:
        def gap(self, gap: Gap) -> None:
            """Take note of a gap."""

    owner = Owner()
    reads = Reads(Log(rng, [10]))
    reads.read(options(0, 5)._replace(on_gap=owner.gap))
    assert len(reads.ahead._kept) == 1
    known = ref(owner)
    del owner
    assert known() is None


def test_a_first_page_fetches_nothing_in_vain(rng: random.Random) -> None:
    log = Log(rng, [1] * 100)
    reads = Reads(log)
    for row in (0, 50, 20):
        after = log.messages[row].pointer
        assert len(reads.read(options(after, 10))) == 10
    assert log.sent == [10, 10, 10]


def test_a_read_goes_on_soon_after_the_one_before_and_begins_anew_later(
    rng: random.Random, clock: Clock
) -> None:
    for pause, goes_on in ((0.0, True), (0.99 * KEPT_S, True), (KEPT_S, False), (1_000.0, False)):
        log = Log(rng, [5] * 4)
        reads = Reads(log)
        after = reads.read(options(limit=2))[-1].pointer
        clock.now += pause
        assert reads.read(options(after, 3)) == log.messages[2:5]
        assert len(log.sent) == (1 if goes_on else 2), pause


def test_a_place_is_freed_once_its_reader_is_of_no_use(rng: random.Random, clock: Clock) -> None:
    """A page is not full, or nothing followed in time, or there are too many others, or `clear` is called."""
    log = Log(rng, [1] * 100)
    reads = Reads(log)

    def two_pages(first: int) -> int:
        after = reads.read(options(log.messages[first].pointer, 2))[-1].pointer
        return reads.read(options(after, 2))[-1].pointer

    after = two_pages(0)
    assert reads.read(options(after, 1_000)) == log.messages[5:]
    assert len(reads.freed) == 1
    after = two_pages(0)
    clock.now += KEPT_S
    reads.read(options(after, 1))
    assert len(reads.freed) == 2
    for number in range(2 * KEPT_MAX):
        two_pages(10 + 5 * number)
    reads.ahead.clear()
    assert len(reads.freed) == len(set(reads.freed)) == 2 + 2 * KEPT_MAX
    assert not reads.ahead._kept


def test_a_reader_that_nothing_follows_is_dropped_with_the_next_read_of_another_topic(
    rng: random.Random, clock: Clock
) -> None:
    reads = Reads(Log(rng, [5] * 10))
    after = reads.read(options(limit=5))[-1].pointer
    reads.read(options(after, 5))
    clock.now += KEPT_S
    reads.read(options(limit=5, topic="another"))
    assert (len(reads.freed), len(reads.ahead._kept)) == (1, 1)


def test_a_read_by_time_begins_anew(rng: random.Random) -> None:
    log = Log(rng, [5] * 4)
    reads = Reads(log)
    after = reads.read(options(limit=2))[-1].pointer
    reads.read(options(after, 2, is_time=True))
    reads.read(options(after, 2, topic="another"))
    assert len(log.sent) == 3


def test_each_page_reports_its_own_gaps(rng: random.Random) -> None:
    """Damaged records lie in the middle of what the second page has fetched."""
    log = Log(rng, [2, 2])
    log.append([DAMAGED] * 2)
    for _ in range(3):
        log.append([b"behind"] * 2)
    reader, reads = PageReader(options()), Reads(log)
    pages: list[tuple[list[Message], list[Gap]]] = []
    for _ in range(4):
        gaps: list[Gap] = []
        found = reads.drive(reader.read(options(limit=2)._replace(on_gap=gaps.append), 1.0))
        reader.goes_on = True
        pages.append((found, gaps))
    assert [found for found, _ in pages] == [log.messages[row : row + 2] for row in (0, 2, 6, 8)]
    assert [[gap.records for gap in gaps] for _, gaps in pages] == [[], [], [2], []]
