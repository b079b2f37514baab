"""Limits which users of the machine may connect to the sockets of ipc endpoints.

A socket is made for its owner alone, and gets its group and its mode then: at no time may more users connect
than in the end. Linux has one umask for a process: a file that another thread makes at the same moment is for
its owner alone, too.
"""

from __future__ import annotations

import grp
import os
from collections.abc import Callable
from pathlib import Path

from quothd.config.config import Config
from quothwire.errors import error

_OWNER_ONLY = 0o077


def socket_path(url: str) -> Path | None:
    """Return the path of an ipc endpoint; None for others, and for an abstract name, which is no file."""
    path = url.removeprefix("ipc://")
    return None if path == url or path.startswith("@") else Path(path)


def group_id(config: Config) -> int:
    """Return the number of `ipc_group`, -1 if none is given. Raises `RequestError` ``bad_setting``."""
    name = config.ipc_group
    if not name:
        return -1
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        text = f"ipc_group: there is no group {name!r}"
        raise error("bad_setting", text, "`getent group` lists those of this machine") from None


def bind_with_access(bind: Callable[[str], None], url: str, config: Config) -> None:
    """Bind a socket, and set the group and the mode of its file, if it has one.

    Raises what `bind` raises, or `RequestError` ``bad_setting``.
    """
    path = socket_path(url)
    if path is None:
        bind(url)
        return
    before = os.umask(_OWNER_ONLY)
    try:
        bind(url)
    finally:
        os.umask(before)
    group = group_id(config)
    try:
        if group != -1:
            os.chown(path, -1, group)
        path.chmod(config.ipc_mode)
    except OSError as problem:
        wanted = f"the mode {config.ipc_mode:04o}" + (
            f" and the group {config.ipc_group}" if group != -1 else ""
        )
        text = f"listen: the socket {path} cannot get {wanted}: {problem.strerror}"
        raise error("bad_setting", text, _hint(config.ipc_group)) from None


def _hint(group: str) -> str:
    in_a_service = (
        f"; the sandbox of the unit has one group only: Group={group} in a drop-in" if group else ""
    )
    return f"is the user of the broker a member of that group?{in_a_service}"
