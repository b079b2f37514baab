"""The addresses that a configuration asks for: TCP ports and the URLs of other endpoints.

Loopback and ipc are reached from this machine alone; any other address needs `insecure`, spelled out.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from quothd.config.config import PORT_MAX, Config
from quothwire.errors import error


class Tcp(NamedTuple):
    """A place to listen on that has a port."""

    host: str
    port: int


def places(config: Config) -> list[Tcp | str]:
    """Where a configuration wants to listen: a port, or the URL of another endpoint.

    Raises `RequestError` ``bad_setting`` for what is no address, and for one that needs `insecure`.
    """
    found: list[Tcp | str] = [Tcp(config.host, config.port)] if config.host else []
    for url in config.listen:
        if url.startswith("tcp://"):
            host, _, port = url.removeprefix("tcp://").rpartition(":")
            if not host or not port.isdigit() or int(port) > PORT_MAX:
                raise error("bad_setting", f"listen: {url!r} has no port", "tcp://HOST:PORT, 0 to 65534")
            found.append(Tcp(host.strip("[]"), int(port)))
        elif url in ("ipc://", "inproc://"):
            raise error("bad_setting", f"listen: {url!r} names nothing", "like ipc:///run/quoth/quoth")
        elif url.startswith(("ipc://", "inproc://")):
            found.append(url)
        else:
            raise error("bad_setting", f"listen: {url!r}", "tcp://HOST:PORT or ipc://PATH")
    for place in found:
        if isinstance(place, Tcp) and not config.insecure:
            _require_loopback(place.host)
    return found


def _require_loopback(host: str) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise error(
            "bad_setting",
            f"{host} can be reached from other machines, and every client there may read, write and delete",
            "listen on 127.0.0.1, or say --insecure if that is what you want",
        )
