"""The directories of this user's programs, as the XDG base directory specification has them."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def config_home() -> Path:
    """Return the folder of configurations. Raises FileNotFoundError if this user has no home."""
    return _folder("XDG_CONFIG_HOME", ".config")


def state_home() -> Path:
    """Return the folder of state that outlives a run. Raises FileNotFoundError if this user has no home."""
    return _folder("XDG_STATE_HOME", ".local/state")


def _folder(variable: str, below_home: str) -> Path:
    named = os.environ.get(variable, "")
    if os.path.isabs(named):  # a relative one is to be ignored
        return Path(named)
    try:
        return Path.home() / below_home
    except RuntimeError:  # a container's user without an entry in passwd
        raise FileNotFoundError(errno.ENOENT, "this user has no home", f"~/{below_home}") from None
