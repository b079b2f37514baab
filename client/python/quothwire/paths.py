"""Paths: as they are given, and whether an open file is still the one of its name."""

from __future__ import annotations

import os
from pathlib import Path

from quothwire.errors import error


def given_path(given: str | os.PathLike[str], what: str) -> Path:
    """Return the path that was given. Raises `RequestError` ``bad_setting`` if it is empty.

    An empty path is a variable that was not set, never the current directory. what: names it in the error: an
    option, a key, an argument.
    """
    if not os.fspath(given):
        raise error("bad_setting", f"{what} is an empty path", 'the current directory is "."')
    return Path(given)


def is_at(fd: int, path: Path) -> bool:
    """Tell whether an open file is still the one of that name. Raises OSError if that cannot be known."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
