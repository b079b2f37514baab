"""State: what groups hold in memory and on disk, and the time to read it after a start."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import zmq

from quothbench import options
from quothbench.groups.rows import GroupRows
from quothbench.instruments.memory import growth, new_broker, parts_of, wait_until
from quothbench.load import driver
from quothbench.load.driver import VALUE
from quothbench.load.servers import own_broker, private_bytes
from quothbench.load.topics import fill
from quothcli.printing.progress import progress
from quothwire import batch
from quothwire.protocol.group_messages import (
    END,
    DescribeGroup,
    GroupFetch,
    GroupFetched,
    GroupInfo,
    GroupSettle,
    GroupSettled,
    OpenGroup,
)
from quothwire.protocol.group_settings import LEASE_S_MAX
from quothwire.protocol.messages import FETCH_BYTES_MAX, WAIT_MS_MAX, Ping
from quothwire.protocol.settlement import ROWS_MAX, Settle, Settlement, encode_settlements

WARM_MAX = 100
"""Groups before the measurement: the first ones pay for what all of them share."""
BURST = 500
"""Fetches that are sent at once: less than a topic may have in work."""
COMPACTED_S = 2.0
"""Time in which a broker with the usual `check_interval` compacts the log."""
BATCH_RECORDS = 1_000
TOPIC = "shared"
FOLDER = "topics/*/groups"
"""The log of the groups in a data directory."""
MB = 1e6


class Settled(NamedTuple):
    """The outcome of acks in random order.

    seconds: of all. longest_s: of a request. disk_max, disk_end: bytes of the groups' log, at most and at the
    end. memory_max: bytes of the broker, at most; None if they are unknown here.
    """

    seconds: float
    longest_s: float
    disk_max: int
    disk_end: int
    memory_max: int | None


# -- memory -------------------------------------------------------------------------------------------------


def measure_memory(directory: Path, rows: GroupRows, groups: int) -> None:
    """Measure the memory of a group, and of its member that waits, among many of one topic."""
    warm = min(WARM_MAX, groups)
    settings = {"waits_max": warm + groups, "groups_max": warm + groups}
    with new_broker(directory, **settings) as (broker, socket), driver.dealer(broker.url) as waiting:
        driver.keep_window(socket, driver.repeated(TOPIC, [VALUE], 1))

        def wait(first: int, end: int) -> None:
            for size in parts_of(end - first, BURST):
                for number in range(first, first + size):
                    request = GroupFetch(_name(number), "member", wait_ms=WAIT_MS_MAX)
                    waiting.send_multipart(driver.numbered(request, TOPIC, 1)[0])
                first += size
                _wait_for(socket, first)

        _open_groups(socket, 0, warm)
        wait(0, warm)
        opened = growth(broker, lambda: _open_groups(socket, warm, warm + groups))
        waited = growth(broker, lambda: wait(warm, warm + groups))
    for figure, grown in (("a group", opened), ("  its member, which waits", waited)):
        rows.single(figure, "B", groups, None if grown is None else grown / groups)


def _wait_for(socket: zmq.Socket[bytes], members: int) -> None:
    """Wait until so many members wait."""
    wait_until(socket, lambda status: status.waits >= members, "all members wait")


# -- acks in random order -----------------------------------------------------------------------------------


def measure_acks(directory: Path, rows: GroupRows, records: int) -> None:
    """Measure the state of a group whose records are acknowledged in random order."""
    found = settle_at_random(directory, records)
    memory = None if found.memory_max is None else found.memory_max / MB
    for figure, unit, value in (
        ("acks in random order", "s", found.seconds),
        (f"  longest, of {ROWS_MAX:,} at once", "ms", found.longest_s * 1e3),
        ("  log of the groups, largest", "MB", found.disk_max / MB),
        ("  log of the groups, at the end", "MB", found.disk_end / MB),
        ("  broker's memory, largest", "MB", memory),
    ):
        rows.single(figure, unit, records, value)


def settle_at_random(directory: Path, records: int, seed: int = 1) -> Settled:
    """Hand all records out, then acknowledge each by a row of its own. records: at least `BATCH_RECORDS`."""
    with (
        options.folder(directory) as made,
        own_broker(made, group_pending_max=2 * records) as broker,
        driver.dealer(broker.url) as socket,
    ):
        with progress("records to hand out") as advance:
            fill(broker.url, TOPIC, [VALUE] * BATCH_RECORDS, records // BATCH_RECORDS, advance)
        pointers = _hand_out(socket, records // BATCH_RECORDS * BATCH_RECORDS)
        random.Random(seed).shuffle(pointers)
        (folder,) = made.glob(FOLDER)
        took: list[float] = []
        sizes: list[int] = []
        held: list[int] = []
        with progress("records to acknowledge") as advance:
            for begin in range(0, len(pointers), ROWS_MAX):
                part = sorted(pointers[begin : begin + ROWS_MAX])
                took.append(_settle(socket, part))
                sizes.append(_size(folder))
                held.append(private_bytes(broker.pid) or 0)
                advance(len(part), 0)
        info = _described(socket, _name(0))
        assert not info.lag, "all records are finished"
        time.sleep(COMPACTED_S)
        sizes.append(_size(folder))
    return Settled(sum(took), max(took), max(sizes), sizes[-1], max(held) or None)


def _hand_out(socket: zmq.Socket[bytes], records: int) -> list[int]:
    """Create a group and take all records for one member; return their pointers."""
    settings = {"max_in_flight": 2 * records, "lease": LEASE_S_MAX}
    driver.ask(socket, OpenGroup(_name(0), settings=settings), TOPIC)
    request = GroupFetch(_name(0), "member", records, FETCH_BYTES_MAX)
    pointers: list[int] = []
    while len(pointers) < records:
        answer = driver.ask(socket, request, TOPIC)
        assert isinstance(answer.reply, GroupFetched)
        for raw in batch.split(answer.payload, answer.reply.log):
            header = batch.parse_header(raw, answer.reply.log)
            pointers += range(header.base, header.last + 1)
    return pointers


def _settle(socket: zmq.Socket[bytes], pointers: Sequence[int]) -> float:
    """Acknowledge records by one request; return its seconds."""
    payload = encode_settlements(Settlement(Settle.ACK, pointer, pointer) for pointer in pointers)
    began = time.perf_counter()
    reply = driver.ask(socket, GroupSettle(_name(0), len(pointers)), TOPIC, payload).reply
    took = time.perf_counter() - began
    assert isinstance(reply, GroupSettled)
    assert reply.records == len(pointers), "each was not finished before"
    return took


# -- starts -------------------------------------------------------------------------------------------------


def measure_starts(directory: Path, rows: GroupRows, groups: int, starts: int) -> None:
    """Measure the first request about a group after a start, on a topic with many groups."""
    data = directory / "many-groups"
    with own_broker(data, groups_max=groups) as broker, driver.dealer(broker.url) as socket:
        driver.keep_window(socket, driver.repeated(TOPIC, [VALUE], 1))
        _open_groups(socket, 0, groups)
    (folder,) = data.glob(FOLDER)
    size = _size(folder)
    took = [_first_request(data, groups) for _ in range(starts)]
    rows.single("first request after a start", "ms", groups, median(took) * 1e3)
    rows.single("  log of the groups", "MB", groups, size / MB)


def _first_request(data: Path, groups: int) -> float:
    with own_broker(data, groups_max=groups) as broker, driver.dealer(broker.url) as socket:
        driver.ask(socket, Ping())
        began = time.perf_counter()
        _described(socket, _name(groups - 1))
        return time.perf_counter() - began


# -- of all of them -----------------------------------------------------------------------------------------


def _name(number: int) -> str:
    return f"group {number:06}"


def _open_groups(socket: zmq.Socket[bytes], first: int, end: int) -> None:
    with progress("groups") as advance:
        for number in range(first, end):
            driver.ask(socket, OpenGroup(_name(number), END), TOPIC)
            advance(1, 0)


def _described(socket: zmq.Socket[bytes], group: str) -> GroupInfo:
    info = driver.ask(socket, DescribeGroup(group), TOPIC).reply
    assert isinstance(info, GroupInfo)
    return info


def _size(folder: Path) -> int:
    """Return the bytes of the files in a folder, which may be removed meanwhile."""
    size = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size
