"""A broker with keys at one address, whose clients and whose own key change while clients are connected."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from kit.broker.brokers import StartBroker
from kit.deadlines import eventually
from kit.keys import KeyFiles, new_key
from kit.text.wording import error_of, names_python
from quoth import AuthError
from quothd import Broker
from quothd.keys import authentication
from quothwire.security.key_file import Key, read_key

FOREVER_S = 60.0
"""A timeout that no test reaches."""
AT_ONCE_S = FOREVER_S / 3
"""In which a client with that timeout has failed if it is refused at once. It takes a tenth of a second."""
UNCHECKED_S = 16.0
"""In which it fails if nothing checks its key: libzmq ends such a handshake at once, or after 3 s."""
OWNER, ALICE, MALLORY = "owner", "alice", "mallory"


class KeyedBroker:
    """A broker process with keys. alice: the key file of a client; mallory: that of an unknown one.

    owner: a key that the broker always knows, for looking at what is stored.
    """

    def __init__(self, start: StartBroker, files: KeyFiles, url: str = "", **settings: object) -> None:
        self.files = files
        self.owner = files.add(OWNER)
        self.alice = files.write_key(files.add(ALICE), ALICE)
        self.mallory = files.write_key(new_key(MALLORY, files.server), MALLORY)
        self.process = start(**files.settings, **settings)
        self.url = url or self.process.url

    @property
    def server(self) -> Key:
        """The key of the broker."""
        return self.files.server

    def revoke(self) -> None:
        """Forget the key of alice, which ends its connections."""
        self.files.remove(ALICE)
        self.reload()

    def allow(self, *keys: Key) -> None:
        """Know these keys, by default that of the key file of alice."""
        for key in keys or (read_key(self.alice),):
            self.files.allow(key)
        self.reload()

    def reload(self) -> None:
        """Let it read its clients file, and wait until it has."""
        before = self._reloads
        os.kill(self.process.pid, signal.SIGHUP)
        eventually(lambda: self._reloads > before, "it has reloaded")

    def restart(self, server: Key | None = None) -> None:
        """End all connections, and take new ones. server: another key of the broker."""
        self.files.replace_server(server or self.server)
        assert self.process.terminate() == 0
        self.process.start()

    def restart_without_keys(self) -> None:
        """End all connections, and take new ones without keys."""
        for name in self.files.settings:
            del self.process.settings[name]
        assert self.process.terminate() == 0
        self.process.start()

    @property
    def _reloads(self) -> int:
        return self.process.stderr.count("event=reloaded")


@contextmanager
def without_authenticator(files: KeyFiles, directory: Path) -> Iterator[str]:
    """Run a broker in this process whose authenticator has ended: it checks no key. Yields its URL."""
    with (
        patch.object(authentication, "PAUSE_S", 3_600.0),
        Broker(directory, host="127.0.0.1", **files.settings) as broker,
    ):
        assert broker._authentication is not None
        broker._authentication._authenticator.stop()
        yield broker.urls[0]


def auth_error_of(call: Callable[..., object], *arguments: object, within_s: float = AT_ONCE_S) -> AuthError:
    """Return the error of a call that is refused in some seconds, in one line."""
    began = time.monotonic()
    problem = error_of(call, *arguments)
    assert isinstance(problem, AuthError), problem
    assert problem.code == "auth_failed"
    assert time.monotonic() - began < within_s
    assert "\n" not in str(problem)
    assert not names_python(problem)
    return problem
