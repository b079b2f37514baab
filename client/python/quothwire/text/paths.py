"""Paths that a person gives, and regular files: reading them, and opening them without following links."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quothwire.errors import error

STRANGE = {
    errno.ELOOP: "a symbolic link stands where a file has to be",
    errno.EISDIR: "a directory stands where a file has to be",
    errno.EINVAL: "something else stands where a file has to be",
    errno.ENXIO: "something else stands where a file has to be",
}
"""The error text for a path that is no regular file, by the error number of opening it."""


def given_path(given: str | os.PathLike[str], what: str) -> Path:
    """Return the path that was given. Raises `RequestError` ``bad_setting`` if it is empty.

    An empty path comes from a variable that was not set, and never means the current directory. what: its
    name in the error: an option, a key, an argument.
    """
    if not os.fspath(given):
        raise error("bad_setting", f"{what} is an empty path", 'the current directory is "."')
    return Path(given)


def open_regular(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file, or create one if the flags say so, and return the descriptor.

    Raises OSError for anything else of that name. Follows no symbolic link and waits for no FIFO.
    """
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    except OSError as problem:
        what = STRANGE.get(problem.errno or 0)
        if what is None:
            raise
        raise OSError(problem.errno, what, str(path)) from None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, STRANGE[errno.EINVAL], str(path))


def read_regular(path: Path, bytes_max: int) -> tuple[bytes, int]:
    """Return the content and the permission bits of one file, which another one may replace meanwhile.

    Follows symbolic links, and waits for no FIFO. Raises OSError, also for what is no regular file, and for
    more bytes than that, of which it reads no more.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        with open(fd, "rb", closefd=False) as file:
            content = file.read(bytes_max + 1)
    finally:
        os.close(fd)
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max} bytes", str(path))
    return content, stat.S_IMODE(mode)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an OSError that is raised inside a path if it has none, as that of a write to a full disk."""
    try:
        yield
    except OSError as problem:
        if problem.filename is None:
            problem.filename = str(path)
        raise


def is_at(fd: int, path: Path) -> bool:
    """True if an open file still has that path. Raises OSError if the path cannot be examined."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
