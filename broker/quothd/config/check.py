"""What can be found to be wrong with a configuration without starting a broker."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quothd.config.addresses import places
from quothd.config.config import KEYS, Config
from quothd.config.sources import Sourced, read
from quothd.config.template import toml
from quothd.ended import Ended
from quothd.service import log_handler
from quothd.service.log_events import note
from quothwire.errors import QuothError, error
from quothwire.protocol import announcement

IPC_PATH_BYTES_MAX = 107
"""Of a socket's path, with the suffix of the announcements."""


def checked(arguments: Mapping[str, Any], file: Path | None = None) -> int:
    """Say whether a daemon could start with this, and in what it differs; returns the exit status."""
    writer = log_handler.begin()
    try:
        found = read(arguments, os.environ, file)
        check(found.config)
    except QuothError as problem:
        note("refused", problem=problem)
        return Ended.WRONG
    finally:
        writer.close()
    print("\n".join(["ok", *digest(found)]))
    return Ended.WELL


def digest(found: Sourced) -> list[str]:
    """In what a configuration differs from the defaults, a line a key, and where that comes from."""
    lines = [f"{name} = {toml(KEYS[name], getattr(found.config, name))}" for name in found.changes()]
    width = max(map(len, lines), default=0)
    told = [
        f"{line:<{width}}  {found.origin(name)}" for name, line in zip(found.changes(), lines, strict=True)
    ]
    return [*told, "everything else is as by default" if told else "everything is as by default"]


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
