"""Evaluates the failed handshakes of a connection: what to try next, and whether the broker has refused it.

    reported       the broker does not know the key (ZAP status 400), cannot check it (500), or one side has
                   keys and the other one has none: refused at once
    not reported   the broker has closed the connection. It does so if its key differs from the server key,
                   but a broker that is killed in the middle of a handshake looks the same, and so does what
                   accepts connections and closes them. So each server key is tried twice, and then the
                   mechanism is asked for: only a broker answers that. After its answer each server key is
                   tried once more, since something else may have closed the connections of before

A broker that has keys may close a connection without a key before the client has read why, so the second
kind counts for clients without a key, too. Uses no socket and no clock.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import zmq

from quoth.connection.endpoint import Endpoint
from quothwire.errors import QuothError, error

if TYPE_CHECKING:
    from quothwire.security.key_file import Key

TRIES = 2
"""Handshakes with one server key that may end without a reason before the mechanism is asked for."""
FAILED = int(
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
"""The events of a monitor for a handshake that has failed."""
_MISMATCH = int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
_UNKNOWN_KEY = 400


class Reason(Enum):
    """The reason of a broker that has refused a connection: a text with places for names, and a hint."""

    UNKNOWN_KEY = (
        "the broker at {url} does not know the key of {name}",
        "its public key has to be in the broker's clients file; `quoth key show FILE` prints it",
    )
    NO_KEY_GIVEN = (
        "the broker at {url} wants a key, and none was given",
        "connect with the client's key file: argument key, option --key-file, variable QUOTH_KEY_FILE",
    )
    NO_KEYS_THERE = (
        "the broker at {url} has no keys, and the key of {name} was given",
        "is it the right broker? it may have been started without its server_key",
    )
    OTHER_SERVER_KEY = (
        "the broker at {url} does not have the server-key of {name}'s key file",
        "is it the right broker? ask for its public key; one that cannot check keys refuses like this, too",
    )
    UNABLE = (
        "the broker at {url} cannot check the key of {name} now",
        "the broker's log has the reason",
    )

    def error(self, url: str, key: Key | None) -> QuothError:
        """Make the error. It quotes no key."""
        text, hint = self.value
        name = key.name if key is not None else ""
        return error("auth_failed", text.format(url=url, name=name or "this client"), hint)


class Handshakes:
    """The handshakes of one connection that have failed since the last one that succeeded.

    reason: why the broker has refused the connection; None if it has not, as far as is known. key,
    server_key: those of the next handshake. are_failing: some have failed since the last `decide`.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.restart()

    def restart(self) -> None:
        """Forget what has failed: another attempt begins."""
        self.reason: Reason | None = None
        self.are_failing = False
        self.key = self._endpoint.key
        known = self.key.server_keys if self.key is not None else ("",)
        preferred = self._endpoint.server_key
        self.server_key = preferred if preferred in known else known[0]
        self._tried = dict.fromkeys(known, 0)
        self._decide_at = TRIES
        """The number of failed handshakes with each server key at which there is something to decide."""
        self._suspected: Reason | None = None
        """The reason of the broker that has answered, if the next handshakes fail, too."""

    def succeeded(self) -> None:
        """Take note of a handshake that has succeeded."""
        self._endpoint.server_key = self.server_key
        self.restart()

    def failed(self, event: int, value: int) -> None:
        """Take note of one that has failed, as the monitor reports it."""
        self.are_failing = True
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self.reason = Reason.UNKNOWN_KEY if value == _UNKNOWN_KEY else Reason.UNABLE
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value == _MISMATCH:
            self.reason = Reason.NO_KEYS_THERE if self.key else Reason.NO_KEY_GIVEN
        else:
            self._tried[self.server_key] += 1

    @property
    def has_tries(self) -> bool:
        """True if the next handshake follows at once, because a server key has still to be tried."""
        return self._tried[self.server_key] < TRIES or self._suspected is not None

    def decide(self) -> bool:
        """Choose the next server key; True if it is time to ask for the mechanism, see `answered`."""
        self.are_failing = False
        if self.reason is not None:
            return False
        self.server_key = min(self._tried, key=self._tried.__getitem__)
        if self._tried[self.server_key] < self._decide_at:
            return False
        self.reason = self._suspected
        self._decide_at = 2 * self._tried[self.server_key]
        return self.reason is None

    def answered(self, mechanism: str) -> None:
        """Take note of the mechanism of what listens there; empty if it is no broker."""
        has_key = self.key is not None
        if mechanism == "CURVE":
            self._suspected = Reason.OTHER_SERVER_KEY if has_key else Reason.NO_KEY_GIVEN
        elif mechanism and has_key:
            self._suspected = Reason.NO_KEYS_THERE
        if self._suspected is not None:
            self._decide_at = self._tried[self.server_key] + 1
