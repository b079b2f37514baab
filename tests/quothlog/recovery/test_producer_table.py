"""The producer table with as much as a topic may know: each roll writes all of it, in few steps."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kit.broker.peers import refused
from kit.broker.transactions import Loader
from kit.clocks import DAY, START
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import OpenLog, encoded, put
from quothlog import Log, file_format
from quothlog.file_format import TABLE_ENTRY
from quothlog.producers import PRODUCERS_MAX, RESULTS_MAX, ProducerTable
from quothlog.transactions.table import (
    APPLICATIONS_MAX,
    ONCE_MAX,
    VERSIONS_MAX,
    StoredTransaction,
    TransactionTable,
)
from quothwire import batch
from quothwire.errors import Damaged
from quothwire.protocol.transaction import is_once, producer_of


def full(table: ProducerTable, newest: int) -> None:
    """Fill a table with producers and applications up to its limits, with all results of each."""
    rng = random.Random(5)
    header = batch.parse_header(encoded([b"x"], producer=1, sequence=1), 0)
    for producer in range(1, PRODUCERS_MAX + 1):
        for sequence in range(2**64 - RESULTS_MAX, 2**64):
            pointer = newest - 10**8 + producer * RESULTS_MAX + sequence % RESULTS_MAX
            table.store(
                header._replace(
                    producer=producer, sequence=sequence, base=pointer, body_check=rng.getrandbits(64)
                )
            )
    for number in range(1, APPLICATIONS_MAX + ONCE_MAX + 1):
        application = number << 16 | (number > ONCE_MAX)
        for version in range(VERSIONS_MAX):
            pointer = newest - 10**7 + number * VERSIONS_MAX + version
            table.applications.add(application, StoredTransaction(version, pointer, rng.getrandbits(40), 7))
    table.commit()


def steps_of(work: Callable[[], object]) -> int:
    """Count the steps that the interpreter takes for some work; a call into C counts as one."""
    steps = 0

    def look(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def test_roll_encodes_only_new_producers(open_log: OpenLog, tmp_path: Path) -> None:
    steps = []
    for results in (1, RESULTS_MAX):
        log = open_log(tmp_path / f"{results} results")
        loaders = [Loader(log, f"application {number}") for number in range(3)]
        for number in range(1, results + 1):
            put(log, *(encoded([b"x"], producer, number) for producer in range(1, 31)))
            for loader in loaders:
                loader.publish(number, [loader.stage(number, 0, [[b"y"]])])
        log.roll()
        log.append(b"x")
        steps.append(steps_of(log.roll))
        (*_, block) = (
            file_format.decode_block(path.read_bytes()) for path in sorted(log.directory.glob("*.seg"))
        )
        known = [len(row.entries) // TABLE_ENTRY.size for row in file_format.decode_table(block.producers)]
        assert sorted(known)[1:] == [results] * 33, "and one of the log itself"
    print(f"steps of a roll with 1 and with {RESULTS_MAX} results of each: {steps}")
    assert steps[0] > 33
    assert steps[1] - steps[0] < 33


def test_cost_of_an_append_does_not_grow_with_the_segment(log: Log) -> None:
    raw = encoded([b"x" * 100])
    steps = []
    for batches in (1, 5_000):
        put(log, *[raw] * batches)
        steps.append(steps_of(lambda: log.append_batches([raw])))
    assert steps[0] == steps[1]


def test_full_producer_table_is_read_back_from_its_bytes() -> None:
    table = ProducerTable()
    assert len(ProducerTable.decode(table.encode(START))) == 0
    full(table, START)
    snapshot = table.encode(START)
    again = ProducerTable.decode(snapshot)
    assert again.encode(START) == snapshot
    assert (len(again), len(again.applications)) == (PRODUCERS_MAX, APPLICATIONS_MAX + ONCE_MAX)
    entries = PRODUCERS_MAX * RESULTS_MAX + (APPLICATIONS_MAX + ONCE_MAX) * VERSIONS_MAX
    assert len(snapshot) == 16 * (PRODUCERS_MAX + APPLICATIONS_MAX + ONCE_MAX) + 32 * entries
    assert len(snapshot) < 4.5 * 2**20


def test_producer_table_has_the_documented_bytes() -> None:
    table = ProducerTable()
    header = batch.parse_header(encoded([b"x"], producer=0x0123456789ABCDEF, sequence=1), 0)
    table.store(header._replace(sequence=2, base=3, records=4, body_check=5))
    table.store(header._replace(sequence=6, base=7, records=8, body_check=2**64 - 1))
    table.applications.add(0x10001, StoredTransaction(9, 10, 11, 12))
    assert table.encode(0).hex(" ", 8) == (
        "efcdab8967452301 0100000002000000"
        " 0200000000000000 0300000000000000 0400000000000000 0500000000000000"
        " 0600000000000000 0700000000000000 0800000000000000 ffffffffffffffff"
        " 0100010000000000 0200000001000000"
        " 0900000000000000 0a00000000000000 0b00000000000000 0c00000000000000"
    )


def test_malformed_producer_table_is_damaged() -> None:
    """Cut between two rows it is a table still: what guards it is its checksum."""
    table = ProducerTable()
    table.applications.add(0x10001, StoredTransaction(9, 10, 11, 12))
    table.applications.add(0x20001, StoredTransaction(9, 10, 11, 12))
    snapshot = table.encode(0)
    for end in set(range(len(snapshot))) - {0, len(snapshot) // 2}:
        with pytest.raises(Damaged):
            ProducerTable.decode(snapshot[:end])
    for kind, entries in ((0, 1), (3, 1), (2, 0)):
        with pytest.raises(Damaged):
            ProducerTable.decode(file_format._ROW.pack(7, kind, entries) + bytes(entries * TABLE_ENTRY.size))


def test_roll_waits_only_for_appended_batches_and_the_next_segment(
    open_log: OpenLog,
) -> None:
    disk = FaultyDisk()
    log = open_log(filesystem=disk)
    log.append(b"x")
    disk.operations.clear()
    log.roll()
    waited = [one.kind for one in disk.operations if one.kind.startswith("sync")]
    assert waited == ["sync", "sync", "sync_directory"]
    assert len(list(log.directory.glob("*.idx"))) == 1


def publish(applications: TransactionTable, name: str, first: int) -> int:
    """Let an application publish a record; returns its id."""
    application = producer_of(name)
    applications.admit(application, first)
    applications.add(application, StoredTransaction(0, first, 1, 1))
    applications.commit()
    return application


def test_single_use_applications_are_replaced_first_and_always_accepted() -> None:
    pointers = count(START)
    applications = TransactionTable()
    lasting = [publish(applications, f"app {i}", next(pointers)) for i in range(APPLICATIONS_MAX)]
    once = [publish(applications, f"~{i}", next(pointers)) for i in range(3 * ONCE_MAX)]
    assert all(map(is_once, once))
    assert len(applications) == APPLICATIONS_MAX + ONCE_MAX
    assert [applications.newest(one) for one in lasting] == [0] * APPLICATIONS_MAX
    assert [applications.newest(one) for one in once] == [-1] * 2 * ONCE_MAX + [0] * ONCE_MAX
    with refused("busy"):
        publish(applications, "one more", next(pointers))
    publish(applications, "one more", START + 8 * DAY)
    assert applications.newest(lasting[0]) == -1
    assert applications.newest(lasting[1]) == 0
    assert len(applications) == APPLICATIONS_MAX + ONCE_MAX
