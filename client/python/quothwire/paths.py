"""Paths as they are given: an empty one is a variable that was not set, never the current directory."""

from __future__ import annotations

import os
from pathlib import Path

from quothwire.errors import error


def given_path(given: str | os.PathLike[str], what: str) -> Path:
    """Return the path that was given. Raises `RequestError` ``bad_setting`` if it is empty.

    what: names it in the error: an option, a key, an argument.
    """
    if not os.fspath(given):
        raise error("bad_setting", f"{what} is an empty path", 'the current directory is "."')
    return Path(given)
