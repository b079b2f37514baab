"""Files that a job keeps: on the disk and out of memory while they are written, there under a name or not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kit.deadlines import eventually
from quoth.spark.atomic_files import AtomicFile
from quothlog.storage.filesystem import PosixFileSystem

SIZE = 2**20


def test_written_pages_leave_memory_once_they_are_on_disk(tmp_path: Path) -> None:
    with AtomicFile(tmp_path, ".parquet") as draft:
        draft.file.write(bytes(SIZE))
        (path,) = tmp_path.iterdir()
        written = PosixFileSystem().open(path)
        draft.file.flush()
        if written.read_at_hand(SIZE, 0) is None:
            pytest.skip("this file system cannot tell what is in memory")
        os.fsync(draft.file.fileno())

        def has_left() -> bool:
            draft.hand_over()
            return written.read_at_hand(SIZE, 0) is None

        # A page that another processor has just used may stay, and so may one that the look has read again.
        eventually(has_left, "memory keeps what was handed over")
        assert written.read(SIZE, 0) == bytes(SIZE)


def test_atomic_file_is_complete_under_its_name_or_absent(tmp_path: Path) -> None:
    for number in range(2):
        with AtomicFile(tmp_path, ".parquet") as draft:
            draft.file.write(b"first")
            draft.hand_over()
            draft.file.write(b", second")
            if number:
                assert draft.keep(tmp_path / "kept") == 13
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("kept", b"first, second")]
