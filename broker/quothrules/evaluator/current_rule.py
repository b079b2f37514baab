"""The number of the rule that a child evaluates, in memory that its parent reads after the child's death."""

from __future__ import annotations

import mmap
import os
import tempfile

from quothwire.closing import Closeable

_NUMBER_BYTES = 4


class CurrentRule(Closeable):
    """One number that two processes share.

    fd: a descriptor that was inherited; None makes a file that is in no folder.
    """

    def __init__(self, fd: int | None = None) -> None:
        self._file = tempfile.TemporaryFile() if fd is None else os.fdopen(fd, "r+b")  # noqa: SIM115
        if fd is None:
            self._file.truncate(_NUMBER_BYTES)
        self._memory = mmap.mmap(self._file.fileno(), _NUMBER_BYTES)

    @property
    def fd(self) -> int:
        """The descriptor that a child inherits."""
        return self._file.fileno()

    @property
    def number(self) -> int:
        """The number of the rule, counted from 0."""
        return int.from_bytes(self._memory[:])

    def begin(self, number: int) -> None:
        """Note that a rule begins."""
        self._memory[:] = number.to_bytes(_NUMBER_BYTES)

    def close(self) -> None:
        """Unmap the memory and close the file."""
        self._memory.close()
        self._file.close()
