"""Follows slabs that another process may be writing, queuefka's own writer included."""

from __future__ import annotations

from pathlib import Path

from quothlog.reading.directory_watch import DirectoryWatch, take_in_time
from quothlog.slabs.slab_reader import SlabFound, SlabReader
from quothlog.storage.clock import Clock, SystemClock
from quothlog.storage.filesystem import FileSystem
from quothwire.errors import error


class SlabFollower:
    """A cursor on a directory of slabs, for ever. Not thread-safe.

    It returns each record and each gap once, and a record only when all of it is there.
    """

    def __init__(
        self,
        directory: str | Path,
        address: int = 0,
        *,
        resume: bool = False,
        durable: bool = False,
        clock: Clock | None = None,
        filesystem: FileSystem | None = None,
    ) -> None:
        """Begin at an address, as `SlabReader` does, and raise as it does.

        resume: the address is that of an earlier follower, or the `next` of what it has returned; reading
        begins there at once. durable: return only what survives a loss of power: each slab is synced first.
        A directory without slabs is an empty log; raises FileNotFoundError if there is no such directory.
        """
        self._reader = SlabReader(directory, address, resume=resume, durable=durable, filesystem=filesystem)
        self._clock = clock or SystemClock()
        self._names = DirectoryWatch(self._reader.directory, self._clock)

    @property
    def address(self) -> int:
        """The address behind everything that was returned."""
        return self._reader.address

    @property
    def unfinished(self) -> int:
        """Bytes at the end that are no whole record yet."""
        return self._reader.unfinished

    def take(self) -> list[SlabFound]:
        """Return what follows, up to a megabyte of records or one longer one; nothing at the end.

        Raises FileNotFoundError if the directory is not there, another OSError if it cannot be listed, and
        `BrokerFailure` ``storage_failed``: the next call goes on, unless a sync has failed, after which each
        call raises the same. Raises `Damaged` if the log ends before what was returned, or ``closed``.
        """
        found = self._reader.take()
        if found or not self._names.may_differ():
            return found
        try:
            self._reader.list_slabs()
            self._check_end()
            return self._reader.take()
        except BaseException:
            self._names.forget()
            raise

    def wait(self, seconds: float | None) -> list[SlabFound]:
        """`take`, as soon as there is something; none after so many seconds, None: it waits for ever.

        Raises as `take` does.
        """
        return take_in_time(self.take, seconds, self._clock)

    def close(self) -> None:
        """Close the slab that is being read; nothing can be read any more."""
        self._reader.close()

    def _check_end(self) -> None:
        """Raise ``damaged`` if other slabs are there than those that were read: their addresses lie below."""
        reader = self._reader
        if reader.last is not None and reader.end < reader.address:
            text = f"{reader.directory} ends at address {reader.end} now, before {reader.address}"
            raise error("damaged", text, "it has lost records, or holds another log: begin at address 0")
