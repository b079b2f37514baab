"""Finds errors in a configuration without starting a broker: in its addresses and its directories.

The broker listens on TCP ports and other endpoints. Only this machine reaches loopback and ipc; any other
address requires the key `server_key`, or `insecure`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from quothd.config.config import PORT_MAX, Config
from quothd.config.sources import read
from quothd.keys.broker_keys import BrokerKeys, read_keys
from quothd.service.ipc_access import group_id, socket_path
from quothd.service.log_events import PROGRAM, note
from quothwire.config.addresses import is_loopback
from quothwire.config.template import differences
from quothwire.errors import QuothError, error
from quothwire.protocol import announcement
from quothwire.service import log_writer
from quothwire.service.exit_status import ExitStatus

IPC_PATH_BYTES_MAX = 107
"""Limits a socket's path with the suffix of the announcements."""
_ALL_HOSTS = {"*", "0.0.0.0"}
"""All addresses of this machine in IPv4."""


def print_check(arguments: Mapping[str, Any], file: Path | None = None) -> int:
    """Print the keys that differ from the defaults, or log what is wrong; returns the exit status.

    arguments: see `quothd.config.sources.read`.
    """
    writer = log_writer.install(PROGRAM)
    try:
        found = read(arguments, os.environ, file)
        check(found.config)
        if (keys := read_keys(found.config)) is not None and not keys.clients.by_name:
            note("no_clients", file=found.config.clients)
    except QuothError as problem:
        note("refused", problem=problem)
        return ExitStatus.WRONG
    finally:
        writer.close()
    print(differences(found))
    return ExitStatus.STOPPED


def check(config: Config) -> BrokerKeys | None:
    """Return the keys of a configuration, None if clients need no key.

    Raises `RequestError` ``bad_setting`` if a broker could not start with it. Creates, binds and locks
    nothing, so a running broker can check its next configuration.
    """
    addresses = listen_addresses(config)
    poe_address(config)
    keys = read_keys(config)
    group_id(config)
    try:
        _check_directory(config.dir)
        for address in addresses:
            if isinstance(address, str) and (path := socket_path(address)) is not None:
                _check_socket(path)
    except OSError as problem:  # a directory above may not be searched
        text = f"{problem.filename}: {problem.strerror}"
        raise error("bad_setting", text, "whose directory is it?") from None
    return keys


def _check_directory(directory: Path) -> None:
    """Raise ``bad_setting`` unless the directory exists or can be created."""
    nearest = directory.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise error("bad_setting", f"dir: {nearest} is no directory", "name one that is, or that can be made")
    if not os.access(nearest, os.W_OK | os.X_OK):
        made = "" if nearest == directory.absolute() else f", so {directory} cannot be made"
        raise error("bad_setting", f"dir: {nearest} cannot be written to{made}", "whose directory is it?")
    require_private(directory)


def require_private(directory: Path) -> None:
    """Raise ``bad_setting`` if a data directory exists and every user of the machine may write there."""
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(directory.stat().st_mode)
        if mode & stat.S_IWOTH:
            text = f"dir: every user of this machine may write to {directory} (mode {mode:04o})"
            raise error("bad_setting", text, f"type `chmod o-w {directory}`; the broker makes it with 0700")


def _check_socket(path: Path) -> None:
    if len(os.fsencode(path)) + len(announcement.SUFFIX) > IPC_PATH_BYTES_MAX:
        most = IPC_PATH_BYTES_MAX - len(announcement.SUFFIX)
        raise error("bad_setting", f"listen: {path} is too long for a socket", f"at most {most} bytes")
    if not path.parent.is_dir():
        raise error("bad_setting", f"listen: there is no directory {path.parent}", "make it, or name another")


# -- addresses --------------------------------------------------------------------------------------------


class Tcp(NamedTuple):
    """A TCP address to listen on."""

    host: str
    port: int


def listen_addresses(config: Config) -> list[Tcp | str]:
    """Return the addresses of a configuration: a `Tcp`, or the URL of another endpoint.

    Raises `RequestError` ``bad_setting`` for a wrong address, and for one that requires keys or `insecure`.
    """
    found: list[Tcp | str] = [Tcp(config.host, config.port)] if config.host else []
    found += [_parse(url) for url in config.listen]
    for address in found:
        if isinstance(address, Tcp) and not config.insecure and not config.server_key:
            _require_loopback(address.host)
    return found


def poe_address(config: Config) -> Tcp | None:
    """Return the address for clients of Poe, None if there is none.

    Raises `RequestError` ``bad_setting`` for a wrong address, for one that other machines reach unless
    `insecure` allows it, and for a broker that no other process reaches: its gateway is one.
    """
    if not config.poe_listen:
        return None
    url = config.poe_listen
    address = _parse(f"{url[:-1]}0" if url.endswith(":*") else url, "poe_listen")
    if not isinstance(address, Tcp):
        raise error("bad_setting", f"poe_listen: {url!r} is not on TCP", "tcp://HOST:PORT")
    if not config.insecure and not is_loopback(address.host):
        raise error(
            "bad_setting",
            f"poe_listen: {address.host} can be reached from other machines, and Poe's protocol has no keys: "
            "every client there may read and write all topics",
            "listen on 127.0.0.1; --insecure lets every client in",
        )
    own = listen_addresses(config)
    if all(isinstance(one, str) and one.startswith("inproc:") for one in own):
        text = "poe_listen: the broker listens on no address that its process for Poe could reach"
        raise error("bad_setting", text, "give it a host, or an ipc endpoint in listen")
    for one in own:
        if not isinstance(one, Tcp) or not _overlap(one.host, address.host):
            continue
        if 0 < one.port <= address.port <= one.port + 1:
            text = f"poe_listen: the broker itself listens on {one.port} and {one.port + 1}"
            raise error("bad_setting", text, f"take another port, {one.port + 2} for example")
    return address


def _overlap(one: str, other: str) -> bool:
    """Return True if a port of one host is taken for the other one, too."""
    hosts = {one, other}
    if len(hosts) == 1 or (hosts & _ALL_HOSTS and not any(":" in host for host in hosts)):
        return True
    return "localhost" in hosts and is_loopback(one) and is_loopback(other)


def _parse(url: str, key: str = "listen") -> Tcp | str:
    if url.startswith("tcp://"):
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        if not host or not port.isdecimal() or int(port) > PORT_MAX:
            raise error("bad_setting", f"{key}: {url!r} has no port", "tcp://HOST:PORT, 0 to 65534")
        return Tcp(host.strip("[]"), int(port))
    if url in ("ipc://", "inproc://"):
        raise error("bad_setting", f"{key}: {url!r} names nothing", "like ipc:///run/quoth/quoth")
    if not url.startswith(("ipc://", "inproc://")):
        raise error("bad_setting", f"{key}: {url!r}", "tcp://HOST:PORT or ipc://PATH")
    return url


def _require_loopback(host: str) -> None:
    if not is_loopback(host):
        raise error(
            "bad_setting",
            f"{host} can be reached from other machines, and without keys every client there may read, write "
            "and delete",
            "listen on 127.0.0.1, or set server_key and clients; --insecure lets every client in",
        )
