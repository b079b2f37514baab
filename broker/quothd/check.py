"""What can be found to be wrong with a configuration without starting a broker."""

from __future__ import annotations

import os
import re
from pathlib import Path

from quothd.config import Config
from quothd.endpoints import places
from quothwire import announcement
from quothwire.errors import error

IPC_PATH_BYTES_MAX = 107
"""Of a socket's path, with the suffix of the announcements."""


def check(config: Config) -> None:
    """Look whether a broker could start with this. Raises `RequestError` ``bad_setting``.

    Nothing is made, bound or locked: a broker that runs may be asked about its next configuration.
    """
    wanted = places(config)
    try:
        _check_directory(config.dir)
        for place in wanted:
            if isinstance(place, str) and re.match("ipc://(?!@)", place):  # @: an abstract name, no file
                _check_socket(Path(place.removeprefix("ipc://")))
    except OSError as problem:  # who asks may not look there
        raise error(
            "bad_setting", f"{problem.filename}: {problem.strerror}", "whose directory is it?"
        ) from None


def _check_directory(directory: Path) -> None:
    """It is there, or it can be made."""
    nearest = directory.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise error("bad_setting", f"dir: {nearest} is no directory", "name one that is, or that can be made")
    if not os.access(nearest, os.W_OK | os.X_OK):
        made = "" if nearest == directory.absolute() else f", so {directory} cannot be made"
        raise error("bad_setting", f"dir: {nearest} cannot be written to{made}", "whose directory is it?")


def _check_socket(path: Path) -> None:
    if len(os.fsencode(path)) + len(announcement.SUFFIX) > IPC_PATH_BYTES_MAX:
        most = IPC_PATH_BYTES_MAX - len(announcement.SUFFIX)
        raise error("bad_setting", f"listen: {path} is too long for a socket", f"at most {most} bytes")
    if not path.parent.is_dir():
        raise error("bad_setting", f"listen: there is no directory {path.parent}", "make it, or name another")
