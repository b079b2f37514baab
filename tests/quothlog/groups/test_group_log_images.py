"""Every disk that a power cut may leave of the log of groups, while they work and while it is compacted.

After every single change of the disk the power fails. What was synced is there: a finished record stays
finished, attempts are not fewer. What was not synced may be forgotten, and no record is finished that no
event has finished.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path

import pytest

from kit.disk.images import Image, PowerCuts
from kit.groups.group_history import GroupCall, GroupHistory
from kit.scale import times
from quothlog import Log, LogOptions
from quothlog.groups import events, group_log
from quothlog.groups.group_log import GroupLog, GroupTable
from quothlog.groups.group_state import GroupState


class Life(PowerCuts):
    """The log of one group on a disk that loses its power at every moment."""

    def __init__(self, directory: Path, samples: int, seed: int) -> None:
        options = LogOptions(size_limit=2**40)
        super().__init__(directory, options, piece=128, samples=samples, share=0.3, seed=seed)
        self.history = GroupHistory()
        self.synced_finished: set[int] = set()
        self.synced_attempts: dict[int, int] = {}
        self.is_made = False
        self.forgotten = 0
        self.open()
        self.log.append(self.history.logged[:1], twice=True)
        self.sync()
        self.is_made = True

    @property
    def group(self) -> GroupState:
        return self.history.group

    def promised(self) -> tuple[Hashable, ...]:
        return len(self.synced_finished), len(self.synced_attempts), self.is_made

    def open(self) -> None:
        self.log = GroupLog(self.opened_on(self.disk, self.clock, self.directory))

    def act(self, name: str, *arguments: int) -> None:
        """Act once, and log that. The group is ahead of the log meanwhile."""
        if logged := self.history.act(name, *arguments):
            self.log.append(logged, twice=name == "snapshot")
        self.fail_here()

    def sync(self) -> None:
        self.log.log.sync()
        unfinished = self.history.unfinished(self.group)
        every = {one for first, last in self.history.batches for one in range(first, last + 1)}
        self.synced_finished = every - unfinished
        attempts = {pointer: int(str(state[0])) for pointer, state in self.history.states(self.group).items()}
        self.synced_attempts = {pointer: number for pointer, number in attempts.items() if number > 1}
        self.fail_here()

    def compact(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(group_log, "COMPACT_BYTES", 0)
        patch.setattr(group_log, "COMPACT_FACTOR", 0)
        assert self.log.compact(GroupTable([self.group]))
        self.sync()

    def check(self, image: Image, reopened: Callable[[], Log]) -> None:
        for is_first in (True, False):
            with reopened() as log:
                opened = GroupLog(log)
                groups = [*opened.load(0.0)]
                assert groups or not self.is_made, "a group that was made is there"
                for group in groups:
                    self.check_group(group)
                    if is_first:
                        self.forgotten += self.is_behind(group)
                        opened.append([events.settled(group, [])])

    def check_group(self, found: GroupState) -> None:
        unfinished = self.history.unfinished(found)
        assert unfinished >= self.history.unfinished(self.group), "finished without an ack"
        assert not unfinished & self.synced_finished, "a synced ack is forgotten"
        states = self.history.states(found)
        for pointer, attempts in self.synced_attempts.items():
            assert pointer not in states or int(str(states[pointer][0])) >= attempts

    def is_behind(self, found: GroupState) -> bool:
        return self.history.unfinished(found) != self.history.unfinished(self.group)


BEFORE: list[GroupCall] = [
    ("hand_out_new", (6,)), ("ack", (12, 12)), ("hand_out_new", (3,)), ("ack", (10, 11)),
    ("nack", (13, 15)), ("hand_out_again", (0,)), ("terminate", (25, 25)), ("send_letter", ()),
    ("ack", (24, 24)),
]  # fmt: skip
AFTER: list[GroupCall] = [
    ("finish_letter", ()), ("hand_out_new", (4,)), ("ack", (13, 14)), ("nack", (26, 26)), ("snapshot", ()),
    ("hand_out_again", (0,)), ("ack", (36, 39)),
]  # fmt: skip


@pytest.mark.parametrize("synced", [1, 2, 5], ids="an fsync behind every {}".format)
def test_a_power_cut_forgets_no_synced_ack_and_finishes_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: int, seed: int
) -> None:
    """Wherever in the life of a group it comes: in a write, in a compaction, behind a restart."""
    life = Life(tmp_path / "log", times(40, 400), seed)
    for number, (name, arguments) in enumerate([*BEFORE, *AFTER]):
        life.act(name, *arguments)
        if number % synced == 0:
            life.sync()
        if number == len(BEFORE):
            life.compact(monkeypatch)
        if number == len(BEFORE) + 2:
            life.log.log.discard()
            life.open()
            life.sync()
    life.compact(monkeypatch)
    life.log.close()
    assert len(life.opened) > 50
    assert life.forgotten or synced == 1
