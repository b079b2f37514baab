"""Groups on a disk that fails at any call, is full, or ends the broker there: nothing is lost or undone.

An ack that is answered is never undone. One that was refused is made or not, which its member does not know.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kit.disk.doubles import CHANGES, Died, FaultyDisk, Kind
from kit.disk.memory_disk import MemoryDisk
from kit.groups.group_topics import GroupTopic, code
from kit.scale import times
from quothlog.groups import group_log
from quothwire.errors import QuothError
from quothwire.protocol.group_messages import UpdateGroup
from quothwire.protocol.settlement import Settle, Settlement

EVERY = times(3, 1)
"""Of so many calls of the disk one fails, in a run of its own; the first of them is chosen at random."""


@dataclass
class Account:
    """The records of a group, and the outcomes that its members saw. perhaps: settled with an error."""

    topic: GroupTopic
    published: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    perhaps: set[int] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)

    def publish(self, *values: bytes) -> None:
        self.published |= {*self.topic.publish(*values)}

    def settle(self, kind: Settle, pointers: list[int], token: int) -> None:
        """Settle records one by one, in one request."""
        self.perhaps |= {*pointers}
        self.topic.settle(*(Settlement(kind, one, one, token, int(kind is Settle.NACK)) for one in pointers))
        self.perhaps -= {*pointers}
        self.acked |= {*pointers} if kind is Settle.ACK else set()
        self.rejected |= {*pointers} if kind is Settle.TERM else set()

    def work(self, records: int, *kinds: Settle) -> None:
        """Fetch records, and settle each in one of these ways, in their order."""
        found = self.topic.fetch(records)
        tokens = {
            pointer: token for token, _, first, last in found.rows for pointer in found.within(first, last)
        }
        for number, pointer in enumerate(found.pointers):
            self.settle(kinds[number % len(kinds)], [pointer], tokens[pointer])

    def check(self) -> None:
        """Hand out all that is left: it is what was not acknowledged, and not rejected."""
        left: set[int] = set()
        while found := self.topic.fetch().pointers:
            left |= {*found}
        dead = self.topic.dead_pointers()
        assert len(dead) == len({*dead}), "one dead letter for each"
        assert not left & (self.acked | self.rejected)
        assert not {*dead} & self.acked
        assert self.published - left - self.perhaps == (self.acked | self.rejected) & self.published
        assert {*dead} >= self.rejected


def story(account: Account) -> Iterator[Callable[[], object]]:
    """The life of a group, step by step; each may fail, and the others follow."""
    topic = account.topic
    ack, nack, term = Settle.ACK, Settle.NACK, Settle.TERM
    yield lambda: topic.make_group(backoff=[0.0], durability="synced")
    yield lambda: account.publish(b"a", b"b")
    yield lambda: account.publish(b"c", b"d", b"e")
    yield lambda: account.work(4, ack, nack, term)
    yield lambda: account.work(2, ack)
    yield topic.topic.topic.groups.compact
    yield lambda: topic.call(UpdateGroup("g", {"lease": 50.0}))
    yield lambda: account.publish(b"f", b"g", b"h")
    yield lambda: account.work(3, nack, ack)
    yield topic.hibernate
    yield lambda: account.work(3, ack, nack)
    yield lambda: topic.pass_time(6.0)
    yield lambda: account.publish(b"i", b"j")
    yield lambda: account.work(2, term, ack)


def live(account: Account) -> None:
    """Go through the story, as far as the topic and the process live."""
    for step in story(account):
        try:
            step()
        except QuothError as problem:
            account.refused.append(problem.code)
        except Died:
            return
        if account.topic.topic.topic.ended:
            return


@pytest.fixture(autouse=True)
def _compact_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_log, "COMPACT_BYTES", 0)
    monkeypatch.setattr(group_log, "COMPACT_FACTOR", 0)


def begun(directory: Path) -> tuple[Account, FaultyDisk]:
    disk = FaultyDisk(MemoryDisk())
    account = Account(GroupTopic(directory, disk))
    disk.operations.clear()
    return account, disk


def ended(account: Account, disk: FaultyDisk) -> None:
    """Let another process go on, on a disk that works again."""
    disk.heal()
    account.topic.kill()
    account.topic.restart()
    if code(account.topic.info) == "unknown_group":
        account.topic.make_group()
    account.check()
    account.topic.kill()


FAILURES: list[tuple[Kind, int, int]] = [
    *((kind, errno.EIO, 0) for kind in (*CHANGES, "open", "read")),
    ("write", errno.ENOSPC, 0),
    ("write", errno.ENOSPC, 70),
    ("create", errno.ENOSPC, 0),
    ("create", errno.EMFILE, 0),
]


@pytest.mark.parametrize(("kind", "problem", "written"), FAILURES, ids=str)
def test_no_failure_of_the_disk_loses_or_undoes_anything(
    tmp_path: Path, kind: Kind, problem: int, written: int, rng: random.Random
) -> None:
    """The n-th operation of a kind fails, for every n; the broker goes on with that, then another one."""
    calm, disk = begun(tmp_path / "calm")
    live(calm)
    assert calm.refused == []
    count = disk.count(kind)
    ended(calm, disk)
    for nth in range(1 + rng.randrange(EVERY), count + 1, EVERY):
        account, disk = begun(tmp_path / str(nth))
        disk.fail(kind, nth, problem, written=written)
        live(account)
        ended(account, disk)


@pytest.mark.parametrize("written", [0, 100])
def test_death_at_each_change_of_the_disk_loses_and_undoes_nothing(
    tmp_path: Path, written: int, rng: random.Random
) -> None:
    calm, disk = begun(tmp_path / "calm")
    live(calm)
    count = disk.count(*CHANGES)
    calm.topic.kill()
    for nth in range(1 + rng.randrange(EVERY), count + 1, EVERY):
        account, disk = begun(tmp_path / str(nth))
        disk.die(nth, written)
        live(account)
        ended(account, disk)


def test_groups_are_opened_again_after_a_read_has_failed(tmp_path: Path) -> None:
    """Wherever in the opening: their log is not left locked."""
    account, disk = begun(tmp_path)
    live(account)
    codes: list[str] = []
    while "" not in codes:
        account.topic.kill()
        account.topic.restart()
        disk.fail("read", len(codes) + 1)
        codes.append(code(account.topic.info))
        disk.heal()
        assert code(account.topic.info) == ""
    assert {*codes[:-1]} == {"storage_failed"}


def test_a_full_disk_refuses_acks_and_the_broker_goes_on_by_itself_once_it_has_room(tmp_path: Path) -> None:
    """Members keep their leases meanwhile. Nothing is handed out, since no ack could be stored."""
    disk = FaultyDisk(MemoryDisk())
    topic = GroupTopic(tmp_path, disk, disk_free_min=2**20)
    topic.make_group(backoff=[0.0])
    topic.publish(b"a", b"b", b"c")
    rows, given_back = topic.fetch(1).rows, topic.fetch(1).rows
    disk.free = 2**19
    topic.pass_time(1.0)
    for _ in range(3):
        assert code(topic.ack, rows) == "disk_low"
    assert code(topic.fetch, 1) == "disk_low", "a first hand-out is logged"
    assert topic.nack(given_back).lost == []
    assert code(topic.fetch, 1) == "disk_low", "a second attempt has to be durable"
    disk.free = None
    topic.pass_time(1.0)
    assert topic.ack(rows).records == 1
    found = topic.fetch()
    assert (found.values, [row[1] for row in found.rows]) == ([b"b", b"c"], [2, 1])
