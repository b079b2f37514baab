"""Opens the endpoints of a broker: a ROUTER each, and beside it a socket for the announcements.

tcp://HOST:PORT        announcements on tcp://HOST:PORT+1
ipc://PATH             announcements on ipc://PATH-announcements
inproc://NAME          announcements on inproc://NAME-announcements
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import zmq

from quothd.announcing.sockets import REQUESTS_AFFINITY, Publisher, open_publisher
from quothd.config.check import Tcp, listen_addresses
from quothd.config.config import Config
from quothd.connections.connection import QUEUED_MAX
from quothd.connections.monitor import Monitor
from quothd.connections.route_guard import RouteGuard, find_next_route
from quothd.connections.router import find_taken_route
from quothd.keys.authentication import Authentication
from quothd.keys.self_test import Endpoints
from quothd.service.ipc_access import bind_with_access
from quothd.service.log_events import note
from quothd.service.poe_supervisor import PoeListener, open_listener
from quothd.threads.polling import guard_polling
from quothlog.storage.clock import Clock
from quothwire.errors import QuothError, error
from quothwire.protocol import announcement

HANDSHAKE_MS = 2_500
"""Clients allow half a second more: they have to see that the broker has ended a handshake, which tells a
client with a wrong key from a broker that is stopped."""
RECEIVED_MAX = 32
"""Requests of a connection that libzmq receives ahead. The front end has to take them even if the connection
has ended meanwhile. With 64 a publish costs the same, with 4 it costs a third more."""
BACKLOG = 4_096
"""Connections that wait to be accepted. Beyond them a client tries again after one second and after three:
with libzmq's 100, floods of connections kept clients out, and so did all clients that came back at once."""
CLOSING_S = 0.05
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound addresses: the URLs of the broker, tcp first, and those of the announcements on tcp.

    poe: the address for clients of Poe, empty if there is none.
    """

    urls: tuple[str, ...]
    announced: tuple[str, ...]
    poe: str = ""

    @property
    def announcements(self) -> str:
        """The URL for every client; empty if each has to take the host by which it reached the broker."""
        if len(self.announced) != 1:
            return ""
        host = self.announced[0].removeprefix("tcp://").rpartition(":")[0].strip("[]")
        return "" if ipaddress.ip_address(host).is_unspecified else self.announced[0]

    @property
    def announcements_port(self) -> int:
        """The port of the announcements at every host, 0 if it is not one."""
        ports = {int(url.rpartition(":")[2]) for url in self.announced}
        return ports.pop() if len(ports) == 1 else 0

    def reachable(self) -> Endpoints:
        """Return the endpoints for other processes, as a program of this machine connects to them."""
        local = [url for url in self.urls if url.startswith("ipc://")]
        remote = [url for url in self.urls if url.startswith("tcp://")]
        beside = [url + announcement.SUFFIX for url in local]
        return Endpoints([*map(_local, remote), *local], [*map(_local, self.announced), *beside])


class Sockets(NamedTuple):
    """A ROUTER, the publisher of the announcements, the ROUTER's monitor, and the guard of its routes.

    poe: the socket for clients of Poe, None if there is none.
    """

    router: zmq.Socket[bytes]
    publisher: Publisher
    monitor: Monitor
    bound: Bound
    guard: RouteGuard
    poe: PoeListener | None

    def close(self) -> None:
        """Close the sockets, which frees their ports."""
        if self.poe is not None:
            self.poe.close()
        self.monitor.close()
        self.router.close(linger=0)
        self.publisher.close()


def _local(url: str) -> str:
    """Return the URL of loopback for one that stands for every address."""
    host, _, port = url.removeprefix("tcp://").rpartition(":")
    address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    if not address.is_unspecified:
        return url
    return f"tcp://127.0.0.1:{port}" if address.version == 4 else f"tcp://[::1]:{port}"


def open_sockets(
    context: zmq.Context[zmq.Socket[bytes]], config: Config, inproc: str, authentication: Authentication
) -> Sockets:
    """Make the sockets, bound to all that is configured, and to `inproc`.

    Clients through `inproc` are in this process and need no key.

    Raises `RequestError` ``bad_setting``, or OSError where another program listens.
    """
    _seed_routes()
    if not guard_polling():
        note("resets_unguarded")
    publisher = open_publisher(context)
    router = monitor = poe = None
    try:
        poe = open_listener(config)
        router = context.socket(zmq.ROUTER)
        for one in (router, publisher.remote):
            one.set(zmq.LINGER, 0)
            one.set(zmq.BACKLOG, BACKLOG)
            one.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
            one.set(zmq.TCP_KEEPALIVE, 1)
        router.set(zmq.SNDHWM, QUEUED_MAX)
        router.set(zmq.RCVHWM, RECEIVED_MAX)
        router.set(zmq.MAXMSGSIZE, config.frame_bytes_max)
        router.set(zmq.AFFINITY, REQUESTS_AFFINITY)
        router.set(zmq.ROUTER_MANDATORY, 1)
        if not config.server_key:  # else libzmq keeps all messages under an identity that is taken, for ever
            router.set(zmq.ROUTER_HANDOVER, 1)
        authentication.secure((router, publisher.remote))
        monitor = Monitor(context, router)  # before the first connection
        _bind_beside(router, publisher.local, inproc, config)
        following = find_next_route(router, partial(_next_client, context, router, inproc))
        if not following.is_known:
            note("routes_unguarded")
        guard = RouteGuard(following, partial(find_taken_route, router))
        bound = _bind_listen(router, publisher, config, inproc)  # now, or requests would come too early
        if poe is not None:
            bound = replace(bound, poe=poe.url)
        return Sockets(router, publisher, monitor, bound, guard, poe)
    except BaseException:
        if monitor is not None:
            monitor.close()
        if router is not None:
            router.close()
        publisher.close()
        if poe is not None:
            poe.close()
        raise


def bind_again(router: zmq.Socket[bytes], urls: Sequence[str], clock: Clock) -> None:
    """Close those of the endpoints that are on TCP, and open them again. Their clients connect again.

    Raises OSError or ``bad_setting`` if one cannot be opened within a second: the broker ends then, and a
    service manager starts it again.
    """
    remote = [url for url in urls if url.startswith("tcp://")]
    for url in remote:
        with suppress(zmq.ZMQError):  # it was closed before
            router.unbind(url)
    for url in remote:
        router.set(zmq.IPV6, int("[" in url))
        for left in reversed(range(_TRIES)):
            try:
                _bind(router, url)
                break
            except (OSError, QuothError):
                if not left:
                    raise
                clock.sleep(CLOSING_S)  # libzmq closes the endpoint in its own thread


def _next_client(context: zmq.Context[zmq.Socket[bytes]], router: zmq.Socket[bytes], inproc: str) -> bytes:
    """Return the route of a client that connects now."""
    with context.socket(zmq.DEALER) as client:
        client.connect(inproc)
        client.send(b"")
        return router.recv_multipart()[0]


def _seed_routes() -> None:
    """Let libzmq begin its routes at a random number.

    It takes them from `rand`, one after the other, and aborts the process if a client has given itself the
    next one as its identity. Without a seed this number is the same in every process.
    """
    seed = getattr(ctypes.CDLL(None), "srand", None)
    if seed is not None:
        seed(secrets.randbits(32))


def _bind_listen(router: zmq.Socket[bytes], publisher: Publisher, config: Config, inproc: str) -> Bound:
    """Bind to all that is configured. inproc: is bound already, and is the last URL."""
    urls: list[str] = []
    announced: list[str] = []
    for place in listen_addresses(config):
        if isinstance(place, Tcp):
            url, beside = _bind_tcp(router, publisher.remote, place)
            announced.append(beside)
        else:
            url = place
            _bind_beside(router, publisher.remote, url, config)
        urls.append(url)
    return Bound((*urls, inproc), tuple(announced))


def _bind_beside(router: zmq.Socket[bytes], announcer: zmq.Socket[bytes], url: str, config: Config) -> None:
    """Bind to a URL with a path or a name, and to another one for the announcements."""
    bind_with_access(partial(_bind, router), url, config)
    bind_with_access(partial(_bind, announcer), url + announcement.SUFFIX, config)


def _bind_tcp(router: zmq.Socket[bytes], announcer: zmq.Socket[bytes], place: Tcp) -> tuple[str, str]:
    """Bind to a port and the next one; port 0 takes any two that are free and neighbours."""
    host, port = place
    address = f"tcp://[{host}]" if ":" in host else f"tcp://{host}"
    for one in (router, announcer):
        one.set(zmq.IPV6, int(":" in host))
    for _ in range(_TRIES):
        _bind(router, f"{address}:{port or '*'}")
        url = router.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        beside = f"{address}:{int(url.rpartition(':')[2]) + 1}"
        try:
            _bind(announcer, beside)
            return url, announcer.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        except OSError:
            router.unbind(url)
            if port:
                raise
    raise OSError(errno.EADDRINUSE, f"no two free neighbouring ports on {host}: say which port to take")


def _bind(one: zmq.Socket[bytes], url: str) -> None:
    try:
        one.bind(url)
    except zmq.ZMQError as problem:
        text = f"cannot listen on {url}: {problem.strerror}"
        if problem.errno == errno.EADDRINUSE:  # it may be free later: nothing is wrong with the configuration
            raise OSError(problem.errno, f"{text} (is another broker running there?)") from None
        raise error("bad_setting", text, "it has to be an address of this machine") from None
