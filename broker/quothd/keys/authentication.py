"""The keys of a running broker: secures its sockets, proves it, and replaces the clients' keys.

libzmq has one secret key per socket, not per connection: a broker cannot have two keys at a time. To replace
it, clients first get its next key beside the present one, then the broker is restarted with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import zmq

from quothd.access.clients_file import ClientTable
from quothd.access.rights import KnownClient, Right
from quothd.access.topic_scope import EVERYTHING
from quothd.keys.authenticator import (
    Authenticator,
    Context,
    DenialLog,
    Denied,
    Socket,
    refuse_old_versions,
    secure,
)
from quothd.keys.broker_keys import POE_CLIENT, RULES_CLIENT, BrokerKeys
from quothd.keys.self_test import Endpoints, require_denials
from quothd.service.log_events import note
from quothwire.errors import error
from quothwire.security.key_file import Key

LOOK_S = 1.0
LOOKS_MAX = 5
"""So many looks without a sign of life mean that the authenticator hangs. Looks are counted and not seconds,
so that a process that was stopped for a while counts none."""
LIBZMQ_LEAST = (4, 3, 4)
"""Clients without a key can crash earlier releases, or fill their memory."""
PAUSE_S, PAUSE_MAX_S = 1.0, 60.0
"""Pause before an authenticator that has ended is started again; it doubles."""
OWN_RIGHTS = {RULES_CLIENT: tuple(Right), POE_CLIENT: (Right.PUBLISH, Right.READ)}
"""The rights of the broker's own processes, on all topics. To write to those of the system takes admin, which
no client of Poe gets."""


class Authentication:
    """The door of a broker. Without keys its methods do nothing. Belongs to the front end's thread.

    `start` and `stop` may run in another thread while there is no front end. denied: takes the key and the
    address of each denied handshake, in the authenticator's thread. revoked: takes the public keys that a
    reload has removed, so that their connections can be ended. own_clients: the names of the broker's own
    processes. own_keys: their keys by these names, made for this run of the broker; empty without keys.
    clients: the accepted ones, with those of the processes; None without keys.
    """

    def __init__(
        self,
        context: Context,
        keys: BrokerKeys | None,
        monotonic: Callable[[], float],
        denied: Denied,
        own_clients: Iterable[str] = (RULES_CLIENT,),
    ) -> None:
        self._context = context
        self._keys = keys
        self._monotonic = monotonic
        self._own_clients = own_clients
        self._denials = DenialLog(denied, monotonic)
        self._authenticator = Authenticator(context, self._denials)
        self.revoked: Callable[[frozenset[str]], None] = _ignore
        self.own_keys: dict[str, Key] = {}
        self.clients: ClientTable | None = None
        self._look_at = self._start_at = 0.0
        self._pause = PAUSE_S
        self._beats = -1
        self._missed = self._restarts = 0
        self._was_running = True

    @property
    def is_on(self) -> bool:
        """True if clients need keys."""
        return self._keys is not None

    @property
    def is_running(self) -> bool:
        """True unless the authenticator has ended or hangs, which closes the door to new connections."""
        return not self.is_on or (self._authenticator.is_alive and self._missed < LOOKS_MAX)

    def start(self) -> None:
        """Accept the clients from now on. Call it before a socket is bound.

        Raises `BrokerFailure` ``unusable_system``, also without keys for a libzmq that strangers can crash;
        OSError or RuntimeError.
        """
        if zmq.zmq_version_info() < LIBZMQ_LEAST:
            least = ".".join(map(str, LIBZMQ_LEAST))
            text = f"libzmq {zmq.zmq_version()} has known holes: clients without a key can crash the broker"
            raise error("unusable_system", text, f"install pyzmq from its wheel, or libzmq from {least} on")
        if self._keys is None:
            return
        if not zmq.has("curve"):
            text = f"libzmq {zmq.zmq_version()} was built without CURVE, which keys need"
            raise error("unusable_system", text, "install pyzmq from its wheel, or libzmq with libsodium")
        for name in self._own_clients:
            public, secret = (part.decode() for part in zmq.curve_keypair())
            self.own_keys[name] = Key(name, public, secret, (self._keys.server.public_key,))
        self.replace(self._keys.clients)
        with _as_os_error("the authenticator cannot start"):
            self._authenticator.start()

    def secure(self, sockets: Iterable[Socket]) -> None:
        """Let sockets require keys if there are any, and ZMTP 3. Call it before they are bound."""
        for socket in sockets:
            if self._keys is not None:
                secure(socket, self._keys.server.secret_key)
            else:
                refuse_old_versions(socket)

    def test(self, endpoints: Endpoints) -> None:
        """Prove that bound endpoints deny an unknown key. Raises `BrokerFailure` ``unusable_system``."""
        if self._keys is None:
            return
        pair = zmq.curve_keypair()
        self._authenticator.silent_key = pair[0].decode()
        server_key = self._keys.server.public_key
        with _as_os_error("the endpoints cannot be tested with a random key"):
            require_denials(self._context, endpoints, server_key, pair, self._monotonic)

    def replace(self, clients: ClientTable | None) -> ClientTable | None:
        """Accept these clients and no others, and report the keys that are not accepted any more.

        Returns `clients`.
        """
        if not self.own_keys or clients is None:
            return self.clients
        if not clients.by_name:
            note("no_clients")
        own = [
            KnownClient(name, (key.public_key,), dict.fromkeys(OWN_RIGHTS[name], EVERYTHING))
            for name, key in self.own_keys.items()
        ]
        former, self.clients = self.clients, ClientTable([*clients.by_name.values(), *own])
        self._authenticator.accept(self.clients.by_key)
        if former is not None:
            self._report_changes(former.by_key, self.clients.by_key)
        return self.clients

    def _report_changes(self, former: Mapping[str, KnownClient], clients: Mapping[str, KnownClient]) -> None:
        added, removed = clients.keys() - former.keys(), former.keys() - clients.keys()
        if added or removed:
            note(
                "clients_changed",
                added=sorted({clients[key].name for key in added}),
                removed=sorted({former[key].name for key in removed}),
            )
        if removed:
            self.revoked(frozenset(removed))

    def tick(self, now: float) -> None:
        """Look at the authenticator, and start it again if it has ended."""
        if not self.is_on or now < self._look_at:
            return
        self._look_at = now + LOOK_S
        beats = self._authenticator.beats
        self._missed = self._missed + 1 if beats == self._beats else 0
        self._beats = beats
        was_running, self._was_running = self._was_running, self.is_running
        if was_running and not self._was_running:
            note("authenticator_down", is_alive=self._authenticator.is_alive)
            self._start_at = now + self._pause
        elif self._was_running and not was_running:
            note("authenticator_up", restarts=self._restarts)
            self._pause = PAUSE_S
        if not self._authenticator.is_alive and now >= self._start_at:
            self._restart(now)

    def counters(self) -> dict[str, int]:
        """Return the state of the authenticator and the numbers of its denials and restarts."""
        if not self.is_on:
            return {}
        return {
            "authenticator_running": int(self.is_running),
            "authenticator_restarts": self._restarts,
            "connections_denied": self._denials.total,
        }

    def stop(self) -> None:
        """End the authenticator: no new connection is accepted any more."""
        self._authenticator.stop()

    def _restart(self, now: float) -> None:
        self._start_at = now + self._pause
        self._pause = min(2 * self._pause, PAUSE_MAX_S)
        try:
            self._authenticator.start()
        except (zmq.ZMQError, RuntimeError) as problem:
            note("authenticator_down", problem=problem)
        else:
            self._restarts += 1


def _ignore(_keys: frozenset[str]) -> None:
    """Leave existing connections as they are."""


@contextmanager
def _as_os_error(what: str) -> Iterator[None]:
    """Turn an error of libzmq, a lack of descriptors for example, into an OSError."""
    try:
        yield
    except zmq.ZMQError as problem:
        raise OSError(problem.errno, f"{what}: {problem.strerror}") from None
