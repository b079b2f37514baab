"""A directory is listed again when its names may be others, and not at each look."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from quothlog import Log, Reader
from quothlog.reading.directory_watch import DirectoryWatch
from quothlog.storage.clock import SystemClock

OpenLog = Callable[..., Log]


def settle(directory: Path) -> None:
    """As if nothing had happened there for long."""
    os.utime(directory, (1, 1))


def test_names_of_a_settled_directory_stay_until_one_comes_or_goes(tmp_path: Path) -> None:
    settle(tmp_path)
    names = DirectoryWatch(tmp_path, SystemClock())
    assert [names.may_differ(), names.may_differ()] == [True, False]
    file = tmp_path / "file"
    for change in (file.touch, file.unlink):
        change()
        assert [names.may_differ(), names.may_differ()] == [True, True], "one more within the same tick"
        settle(tmp_path)
        assert [names.may_differ(), names.may_differ()] == [True, False]
    names.forget()
    assert names.may_differ()
    tmp_path.rmdir()
    with pytest.raises(FileNotFoundError):
        names.may_differ()


def test_reader_of_a_settled_directory_sees_the_log_roll(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    with Reader(directory) as reader:
        for number in range(3):
            log.append([b"%d" % number])
            assert [record.value for record in reader] == [b"%d" % number]
            settle(directory)
            assert reader.read() == []
            log.roll()
