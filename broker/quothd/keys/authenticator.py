"""Accepts or denies the handshakes of clients by their public keys, in a thread of its own.

libzmq asks for each handshake with CURVE through the socket inproc://zeromq.zap.01 of the context, see
https://rfc.zeromq.org/spec/27. It asks only if a socket has a domain, and it refuses a connection without an
answer only if that socket enforces the domain: `secure` sets both. Without this thread no new connection is
accepted, and the existing ones go on.

The class of pyzmq is not used: it accepts every handshake without keys, and its callback gets no address.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from itertools import count

import zmq
from zmq.utils import z85

from quothd.service.log_events import note

ENDPOINT = "inproc://zeromq.zap.01"
VERSION, MECHANISM = b"1.0", b"CURVE"
DOMAIN = b"quoth"
BEAT_MS = 1_000
"""The thread counts a beat at least so often, which proves that it does not hang."""
STOP_S = 2.0
_NAME = "quoth-authenticator"
_STOP = b"stop"
_FRAMES = 7
"""Version, request, domain, address, identity, mechanism, key."""

WINDOW_S = 60.0
LOGGED_MAX = 30
"""Denials that are logged in a window. The number of further denials follows at its end."""
LOGGED_OF_ADDRESS_MAX = 3
"""Those of one address, so that one client does not use up those of others."""

Denied = Callable[[str, str], None]
"""Takes the public key and the address of a denied handshake."""

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]


def secure(socket: Socket, secret_key: str) -> None:
    """Let a socket accept only clients whose keys the authenticator accepts. Call it before each bind."""
    socket.set(zmq.CURVE_SERVER, 1)
    socket.set(zmq.CURVE_SECRETKEY, secret_key.encode())
    socket.set(zmq.ZAP_DOMAIN, DOMAIN)
    socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)


def refuse_old_versions(socket: Socket) -> None:
    """Let a socket without keys accept ZMTP 3 alone. Call it before each bind.

    libzmq does not say over which connection a message of an older version comes, so no limit would hold. It
    refuses those where a socket names a domain. Without an authenticator, that has no other effect.
    """
    socket.set(zmq.ZAP_DOMAIN, DOMAIN)


class DenialLog:
    """Logs the denials of an authenticator, and counts the others of a flood, which must not fill the log.

    Belongs to the authenticator's thread. denied: takes the key and the address of every denial, see `add`.
    total: the number of all denials.
    """

    def __init__(self, denied: Denied, monotonic: Callable[[], float]) -> None:
        self._denied = denied
        self._monotonic = monotonic
        self._ends_at = 0.0
        self._logged: Counter[str] = Counter()
        self._counted = 0
        self.total = 0

    def add(self, key: str, address: str) -> None:
        """Log a denial, or count it.

        key: 40 characters, "" if the client has none. address: as libzmq has it; of a client through ipc
        localhost and the numbers of its user, group and process.
        """
        self.tick()
        self.total += 1
        self._denied(key, address)
        if self._logged.total() < LOGGED_MAX and self._logged[address] < LOGGED_OF_ADDRESS_MAX:
            self._logged[address] += 1
            note("connection_denied", key=key, address=address)
        else:
            self._counted += 1

    def tick(self) -> None:
        """Begin a new window if the last one has ended."""
        now = self._monotonic()
        if now >= self._ends_at:
            self.flush()
            self._ends_at = now + WINDOW_S

    def flush(self) -> None:
        """Log the number of the denials that were only counted."""
        counted, self._counted = self._counted, 0
        self._logged.clear()
        if counted:
            note("connections_denied", number=counted)


class Authenticator:
    """Answers the handshakes of one context. Its methods belong to one thread at a time, except `accept`.

    denials: takes the denied handshakes. beats: grows while the thread works. silent_key: a key that is
    denied without a record.
    """

    def __init__(self, context: Context, denials: DenialLog) -> None:
        self._context = context
        self._denials = denials
        self._accepted: frozenset[str] = frozenset()
        self._thread: threading.Thread | None = None
        self._pipe: Socket | None = None
        self._numbers = count()
        self.silent_key = ""
        self.beats = 0

    def accept(self, keys: Iterable[str]) -> None:
        """Accept these public keys from now on, and no others. Any thread."""
        self._accepted = frozenset(keys)

    def start(self) -> None:
        """Start the thread. Raises zmq.ZMQError if the context has such a thread, or RuntimeError."""
        self.stop()
        with ExitStack() as opened:
            zap, pipe, other = (self._socket(kind, opened) for kind in (zmq.REP, zmq.PAIR, zmq.PAIR))
            name = f"inproc://{_NAME}-{id(self)}-{next(self._numbers)}"
            pipe.bind(name)
            other.connect(name)
            zap.bind(ENDPOINT)
            thread = threading.Thread(target=self._run, args=(zap, other), name=_NAME, daemon=True)
            thread.start()
            opened.pop_all()
        self._thread, self._pipe = thread, pipe

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """End the thread, and log the denials that it has counted. A second call does nothing."""
        thread, pipe = self._thread, self._pipe
        self._thread = self._pipe = None
        if pipe is not None:
            with suppress(zmq.ZMQError):  # the thread has ended by itself
                pipe.send(_STOP, zmq.NOBLOCK)
            if thread is not None:
                thread.join(STOP_S)
            pipe.close()

    def _socket(self, kind: int, opened: ExitStack) -> Socket:
        """Open a socket, which the stack closes."""
        socket: Socket = self._context.socket(kind)
        opened.callback(socket.close)
        socket.set(zmq.LINGER, 0)
        return socket

    # -- the thread -----------------------------------------------------------------------------------------

    def _run(self, zap: Socket, pipe: Socket) -> None:
        try:
            self._answer_all(zap, pipe)
        except BaseException as problem:  # the door is closed until it is started again
            note("authenticator_failed", problem)
        finally:
            zap.close()
            pipe.close()

    def _answer_all(self, zap: Socket, pipe: Socket) -> None:
        poller = zmq.Poller()
        poller.register(zap, zmq.POLLIN)
        poller.register(pipe, zmq.POLLIN)
        while True:
            readable = dict(poller.poll(BEAT_MS))
            self.beats += 1
            if pipe in readable:
                self._denials.flush()
                return
            if zap in readable:
                zap.send_multipart(self._reply(zap.recv_multipart()))
            self._denials.tick()

    def _reply(self, request: list[bytes]) -> list[bytes]:
        """Return the answer to a handshake: status 200 with the key as the User-Id, or 400."""
        number = request[1] if len(request) > 1 else b""
        key = self._key_of(request)
        if key in self._accepted:
            return [VERSION, number, b"200", b"OK", key.encode(), b""]
        if key != self.silent_key or not key:
            address = request[3].decode("utf-8", "replace") if len(request) == _FRAMES else ""
            self._denials.add(key, address)
        return [VERSION, number, b"400", b"unknown key", b"", b""]

    @staticmethod
    def _key_of(request: list[bytes]) -> str:
        """Return the public key of a handshake, "" if it is no handshake with one."""
        if len(request) != _FRAMES:
            return ""
        version, _, domain, _, _, mechanism, key = request
        is_ours = (version, domain, mechanism, len(key)) == (VERSION, DOMAIN, MECHANISM, 32)
        return z85.encode(key).decode() if is_ours else ""
