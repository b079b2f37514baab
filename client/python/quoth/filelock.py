"""A lock beside a file that one program at a time goes on with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quothwire.flock import Flock

SUFFIX = ".lock"
_HINT = "one program at a time goes on with it: stop that one, or give this one a file of its own"


class FileLock(Flock):
    """The lock on a file, held until `release`.

    Raises `Conflict` ``locked`` with the owner's pid, or OSError if there can be no file beside that one.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        with self.opening():
            self._take(path.with_name(path.name + SUFFIX), path, _HINT, mode=0o666)

    @property
    def is_held(self) -> bool:
        """True until it is released, or stays with a parent process."""
        return not self.released

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Read inside the file that it guards; release it if that fails."""
        try:
            yield
        except BaseException:
            self.release()
            raise
