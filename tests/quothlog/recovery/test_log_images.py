"""Every disk that a loss of power may leave of one log, opened.

A log lives through all that changes its directory: it begins, rolls, is trimmed, closed and opened again, and
quarantines a torn end. After every single change of the disk the power fails; each disk that this may leave
is opened, held against what had been promised by then, and written to. So a sync that is missing anywhere, of
a file or of a directory, is found. No opening tells a loss of synced records, and nor does looking at such a
disk before: that would be a false alarm.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kit.disk.images import Image, PowerCuts
from kit.disk.logs import encoded, put, salvaged
from kit.scale import times
from quothlog import Log, LogOptions
from quothlog.recovery import verify

OPTIONS = LogOptions(count_limit=6)


class Life(PowerCuts):
    """A log on a disk that loses its power at every moment, and what it has promised."""

    def __init__(self, directory: Path, piece: int, seed: int, samples: int) -> None:
        super().__init__(directory, OPTIONS, piece=piece, samples=samples, share=0.4, seed=seed)
        self.appended: list[bytes] = []
        self.pointers: dict[bytes, int] = {}
        self.synced = 0  # of what was appended
        self.trimmed = 0  # of what was appended
        self.log: Log

    def promised(self) -> tuple[int, ...]:
        return self.synced, self.trimmed, self.seen

    def open(self) -> None:
        """Open the log, which syncs all that it finds."""
        self.log = self.opened_on(self.disk, self.clock, self.directory)
        self.synced = len(self.appended)

    def append(self, records: int, size: int) -> None:
        """Append a batch whose values say their place; readers see it at once."""
        values = [b"%05d" % (len(self.appended) + i) + b"." * size for i in range(records)]
        self.appended += values
        (stored,) = put(self.log, encoded(values))
        self.pointers |= {value: stored.first + i for i, value in enumerate(values)}
        self.seen = max(self.seen, self.log.newest)

    def sync(self) -> None:
        self.log.sync()
        self.synced = len(self.appended)

    def trim(self, records: int) -> None:
        """From here on the first so many may be there or not."""
        self.trimmed = records
        self.log.trim(self.pointers[self.appended[records]])

    def look_at(self, image: Image) -> None:
        """An inspection without opening finds no damage but in what no sync had reached."""
        directory = self.directory.with_name("looked at")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for path, data in image.items():
            (directory / path.name).write_bytes(data)
        with suppress(FileNotFoundError):
            for one in verify.summaries(directory):
                for damage in one.unmended:
                    assert damage.records, damage
                    assert damage.ordinal >= self.synced or damage.ordinal < self.trimmed, damage

    def check(self, image: Image, reopened: Callable[[], Log]) -> None:
        for more in (b"goes on", b"and on"):
            with reopened() as log:
                assert log.findings.lost_records == 0, "what was synced is there"
                found = salvaged(log)
                assert [one.pointer for one in found] == sorted({one.pointer for one in found})
                assert log.newest == (found[-1].pointer if found else 0)
                ours = {one.value: one.pointer for one in found if one.value[:1] == b"0"}
                assert list(ours) == sorted(ours)
                assert all(self.pointers.get(value, pointer) == pointer for value, pointer in ours.items())
                assert ours.keys() >= set(self.appended[self.trimmed : self.synced])
                assert {one.value for one in found} - ours.keys() <= {b"goes on", b"and on"}
                assert log.append(more).first > self.seen


def live(life: Life) -> None:
    """Begin, write, roll, trim, close, open, write on."""
    life.open()
    life.append(1, 100)
    life.append(2, 500)
    life.sync()
    life.append(2, 700)
    life.append(1, 10)
    life.append(3, 300)  # rolls
    life.append(2, 10)
    life.sync()
    life.append(1, 10)
    life.append(2, 1_200)  # rolls
    life.trim(6)
    life.append(1, 3_000)
    life.log.close()
    life.open()
    life.append(1, 20)
    life.log.discard()
    life.open()
    life.append(2, 20)
    life.sync()


def tear(life: Life) -> None:
    """A process dies in the middle of a write; another one quarantines what is torn, and goes on."""
    life.open()
    life.append(1, 100)
    life.sync()
    life.append(1, 600)
    size = life.log.info().bytes
    life.append(1, 1_500)
    life.log.discard()
    (name,) = (name for name in life.disk.list(life.directory) if name.endswith(".seg"))
    life.disk.open(life.directory / name).truncate(size + 900)
    life.appended.pop()
    life.open()
    life.append(2, 100)
    life.sync()
    life.append(5, 100)  # rolls
    life.log.close()


@pytest.mark.parametrize("piece", [512, 4_096])
@pytest.mark.parametrize("story", [live, tear])
def test_synced_records_are_on_every_disk_that_a_loss_of_power_may_leave(
    tmp_path: Path, story: Callable[[Life], None], piece: int, seed: int
) -> None:
    """`synced` survives a loss of power, wherever in the life of a log it comes."""
    life = Life(tmp_path / "log", piece, seed, times(26, 500))
    story(life)
    assert len(life.opened) > 50
