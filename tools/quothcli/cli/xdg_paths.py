"""Where this user's programs keep things, as the XDG base directories have it: below home, unless told."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def config_home() -> Path:
    """The folder of configurations. Raises FileNotFoundError if this user has no home."""
    return _folder("XDG_CONFIG_HOME", ".config")


def state_home() -> Path:
    """The folder of what outlives a run. Raises FileNotFoundError if this user has no home."""
    return _folder("XDG_STATE_HOME", ".local/state")


def _folder(variable: str, below_home: str) -> Path:
    told = os.environ.get(variable, "")
    if os.path.isabs(told):  # a relative one is to be ignored
        return Path(told)
    try:
        return Path.home() / below_home
    except RuntimeError:  # a container's user that nobody knows
        raise FileNotFoundError(errno.ENOENT, "this user has no home", f"~/{below_home}") from None
