"""The addresses on which a configuration lets the broker listen: TCP ports and other endpoints.

Only this machine reaches loopback and ipc. Any other address requires the key `insecure`.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from quothd.config.config import PORT_MAX, Config
from quothwire.errors import error


class Tcp(NamedTuple):
    """A TCP address to listen on."""

    host: str
    port: int


def listen_addresses(config: Config) -> list[Tcp | str]:
    """Return the addresses of a configuration: a `Tcp`, or the URL of another endpoint.

    Raises `RequestError` ``bad_setting`` for a wrong address, and for one that requires `insecure`.
    """
    found: list[Tcp | str] = [Tcp(config.host, config.port)] if config.host else []
    found += [_parse(url) for url in config.listen]
    for address in found:
        if isinstance(address, Tcp) and not config.insecure:
            _require_loopback(address.host)
    return found


def _parse(url: str) -> Tcp | str:
    if url.startswith("tcp://"):
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        if not host or not port.isdigit() or int(port) > PORT_MAX:
            raise error("bad_setting", f"listen: {url!r} has no port", "tcp://HOST:PORT, 0 to 65534")
        return Tcp(host.strip("[]"), int(port))
    if url in ("ipc://", "inproc://"):
        raise error("bad_setting", f"listen: {url!r} names nothing", "like ipc:///run/quoth/quoth")
    if not url.startswith(("ipc://", "inproc://")):
        raise error("bad_setting", f"listen: {url!r}", "tcp://HOST:PORT or ipc://PATH")
    return url


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
