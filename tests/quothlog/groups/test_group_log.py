"""The log of groups: it follows the state, not the number of acks."""

from __future__ import annotations

import random
from pathlib import Path

from kit.clocks import ManualClock
from kit.scale import times
from quothlog.groups import events
from quothlog.groups.group_log import COMPACT_BYTES, GroupLog, GroupTable
from quothlog.groups.group_state import GivenLease, GroupState
from quothlog.groups.selection import ChosenRecords
from quothlog.groups.spans import Extents
from quothlog.storage.filesystem import PosixFileSystem
from quothwire.protocol.group_settings import GroupSettings

RECORDS = times(30_000, 1_000_000)
ROWS = 100


def _opened(directory: Path) -> GroupLog:
    return GroupLog.open(directory, 77, PosixFileSystem(), ManualClock(tick=1), 0)


def test_a_million_acks_in_any_order_leave_a_small_log(tmp_path: Path, rng: random.Random) -> None:
    group = GroupState(1, "g", GroupSettings(max_in_flight=RECORDS), 0, 0)
    chosen = ChosenRecords(RECORDS, RECORDS, RECORDS, Extents(0, [1], [RECORDS]), [], is_all=True)
    group.lease_new(chosen, GivenLease(5, "m", 30.0))
    table = GroupTable([group])
    pointers = rng.sample(range(1, RECORDS + 1), RECORDS)
    with _opened(tmp_path) as log:
        log.append([events.snapshot(group)], twice=True)
        for at in range(0, RECORDS, ROWS):
            finished = [
                span for pointer in sorted(pointers[at : at + ROWS]) for span in group.ack(pointer, pointer)
            ]
            log.append([events.settled(group, finished)])
            for span in finished:
                group.finish([span])
            log.compact(table)
        assert len(group.spans) == 0
        log.append([events.settled(group, [])] * (2 * COMPACT_BYTES // 30))
        assert log.compact(table), "what it has is far more than an empty group needs"
        assert log.log.info().bytes < 10_000
    with _opened(tmp_path) as log:
        (found,) = log.load(0.0)
        assert (found.after, found.cursor, len(found.spans)) == (RECORDS, RECORDS, 0)
