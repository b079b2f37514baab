"""The address of a broker, and the key with which a client reaches it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import zmq

from quothwire.errors import QuothError, error

if TYPE_CHECKING:
    from quothwire.security.key_file import Key

GivenKey: TypeAlias = "str | os.PathLike[str] | Key | None"
"""The path of a key file, or its content; None for a broker without keys."""


class Endpoint:
    """The address of a broker, shared by all connections of a client, in all of its threads.

    key: None for a broker without keys. server_key: the public key of the broker with which the last
    handshake succeeded; "" if none has.
    """

    def __init__(self, url: str, key: GivenKey = None) -> None:
        """Read the key file. Raises `RequestError` ``bad_setting`` for a key that no client can use."""
        self.url = url
        self.key = None if key is None or self.is_inside else _usable(key)
        self.server_key = ""
        self._path = os.path.abspath(key) if self.key and isinstance(key, (str, os.PathLike)) else None

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r}, {self.key!r})"

    @property
    def is_inside(self) -> bool:
        """True for a broker inside this process, which needs no key."""
        return self.url.startswith("inproc:")

    def is_outdated(self, used: Key | None) -> bool:
        """Read the key file again; True if another key is to be used now. used: by the last handshake.

        A file that cannot be used now, such as one that is being replaced, changes nothing.
        """
        if self._path is not None:
            with suppress(QuothError):
                self.key = _usable(self._path)
        return self.key != used


def secure(socket: zmq.Socket[bytes], key: Key, server_key: str) -> None:
    """Let the next connection of a socket use a key, with a broker that has this public key."""
    socket.set(zmq.CURVE_SERVERKEY, server_key.encode())
    socket.set(zmq.CURVE_PUBLICKEY, key.public_key.encode())
    socket.set(zmq.CURVE_SECRETKEY, key.secret_key.encode())


def _usable(given: str | os.PathLike[str] | Key) -> Key:
    # Slow to load, and not needed by most clients.
    from quothwire.security.key_file import Key, check_keys, read_key

    key = given if isinstance(given, Key) else read_key(given)
    what = f"the key of {key.name}" if isinstance(given, Key) else f"the key file {os.fspath(given)}"
    if not key.secret_key:
        raise _unusable(f"{what} has no secret-key", "a client needs its secret file, not the public one")
    if not key.server_keys:
        raise _unusable(f"{what} has no server-key", "a client needs the public key of its broker, too")
    check_keys(what, (key.public_key, key.secret_key, *key.server_keys))
    if not zmq.has("curve"):
        raise _unusable("this libzmq was built without CURVE, which keys need", "install the wheel of pyzmq")
    if zmq.curve_public(key.secret_key.encode()).decode() != key.public_key:
        raise _unusable(f"the public-key of {what} does not belong to its secret-key", "copy both again")
    return key


def _unusable(text: str, hint: str) -> QuothError:
    return error("bad_setting", text, hint)
