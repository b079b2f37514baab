"""A disk that fails while transactions are staged and published, at each operation in turn.

A refused request is tried again, after a new start if the log says so. In the end each transaction is there
once, whole, and nothing is left of what was staged.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.broker.transactions import Loader
from kit.clocks import DAY, ManualClock
from kit.disk.doubles import CHANGES, FaultyDisk, Kind
from kit.disk.logs import copy, values
from quothlog import Appended, Log, LogOptions
from quothwire.errors import QuothError

APPENDED, SEGMENTS = LogOptions(size_limit=2**16), LogOptions(size_limit=2_000)
VERSIONS = {
    version: [[[b"%d.%d.%d" % (version, part, i) + b"-" * 200] for i in range(2)] for part in range(3)]
    for version in (1, 2)
}
VALUES = [value for parts in VERSIONS.values() for part in parts for batch in part for value in batch]

both = pytest.mark.parametrize("options", [APPENDED, SEGMENTS], ids=["appended", "segments"])


class Story:
    """An application and a log on a disk of which one operation fails."""

    def __init__(self, directory: Path, disk: FaultyDisk, options: LogOptions) -> None:
        self.directory = directory
        self.disk = disk
        self.options = options
        self.clock = ManualClock(tick=1_000)
        self.codes: set[str] = set()
        self.open()

    def open(self) -> None:
        """Open the log; after a failed opening once more, on a disk that is well."""
        for _ in range(2):
            try:
                self.log = Log.open(
                    self.directory, filesystem=self.disk, clock=self.clock, options=self.options
                )
                try:
                    self.loader = Loader(self.log)
                except OSError:
                    self.log.discard()
                    raise
                return
            except OSError as problem:
                self.codes.add(f"opening: {errno.errorcode[problem.errno or 0]}")
                self.disk.heal()
        raise AssertionError("a log that cannot be opened on a disk that is well")

    def insist(self, act: Callable[[], Appended | object]) -> object:
        """Try an act again until it succeeds."""
        for _ in range(2):
            seen = values(self.log)
            try:
                return act()
            except (QuothError, OSError) as problem:
                code = problem.code if isinstance(problem, QuothError) else type(problem).__name__
                self.codes.add(code)
                self.refused(code, seen)
        raise AssertionError("refused by a disk that is well")

    def refused(self, code: str, seen: list[bytes]) -> None:
        """Nothing is to be seen of what was refused; what has failed for good needs a new start."""
        self.disk.heal()
        assert values(self.log) == seen, "visible, although it was refused"
        assert (self.log.failure is not None) == (code == "storage_failed")
        if code == "storage_failed":
            self.log.close()
            self.open()

    def tell(self) -> None:
        """All of it."""
        for version, parts in VERSIONS.items():
            named = [
                self.insist(lambda v=version, p=part, b=batches: self.loader.stage(v, p, b))  # type: ignore[misc]
                for part, batches in enumerate(parts)
            ]
            self.insist(lambda v=version: self.loader.stage(v, 0, [[b"of a dead task"]], attempt=9))  # type: ignore[misc]
            told = self.insist(lambda v=version, n=named: self.loader.publish(v, n))  # type: ignore[misc]
            assert isinstance(told, Appended)
            self.insist(lambda: self.loader.stage(8, 0, [[b"aborted"]]))
            self.insist(lambda: self.loader.own.abort(self.loader.id, 8))
            self.insist(lambda: self.loader.stage(9, 0, [[b"expired"]]))
            self.clock.step(2 * DAY)
            self.insist(lambda: list(self.loader.own.expire()))

    def end(self) -> None:
        """As if nothing had ever failed, now, after a crash and after a clean end."""
        self.disk.heal()
        assert values(self.log) == VALUES
        crashed = copy(self.directory, self.directory.with_suffix(".crashed"))
        self.log.close()
        for directory in (crashed, self.directory):
            with Log.open(directory, clock=self.clock) as log:
                loader = Loader(log)
                assert values(log) == VALUES
                assert [loader.publish(version, []).duplicate for version in VERSIONS] == [True, True]
                assert loader.own.staged_bytes == 0
            assert {path.suffix for path in directory.iterdir()} <= {".seg", ".idx", ".torn", ""}


@both
@pytest.mark.parametrize("problem", [errno.EIO, errno.ENOSPC, errno.EMFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", CHANGES)
def test_each_operation_fails_once(tmp_path: Path, options: LogOptions, kind: Kind, problem: int) -> None:
    """EIO stops the writing until the next start, a full disk and missing descriptors pass."""
    disk = FaultyDisk()
    story = Story(tmp_path / "undisturbed", disk, options)
    story.tell()
    count = disk.count(kind)
    story.end()
    codes: set[str] = set()
    for nth in range(1, count + 1):
        disk = FaultyDisk(syncs=False)
        disk.fail(kind, nth, problem, written=nth * 37 % 300)
        story = Story(tmp_path / f"{nth}", disk, options)
        story.tell()
        story.end()
        codes |= story.codes
    print(f"{kind} {problem}: {count} times, {sorted(codes)}")
    if problem == errno.ENOSPC and kind in ("write", "create"):
        assert "disk_low" in codes
    if problem == errno.EIO and kind in ("write", "sync", "create"):
        assert "storage_failed" in codes
