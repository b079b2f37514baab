"""Binds producer ids and applications of one topic to the clients that have begun them.

Another client that publishes under such an id could make the next batch of its owner look like a repeated
one, and remove what that has staged. Ids can be read in batches, so they are no secret.

    producers.bound      p 0123456789abcdef alice          one line an id: p a producer, a an application
                         a fedcba9876543210 bob

A stored batch binds its id; the other requests only check it. A line is written after the first batch of an
id, and synced when the topic hibernates: after a power cut, the newest ids may belong to the client that uses
them first. The same holds for ids that are older than the keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Set
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from quothd.access.quota import Quota
from quothd.access.rights import KnownClient
from quothd.service.log_events import note
from quothlog import Log
from quothlog.datadir.topic_file import BOUND_NAME
from quothlog.producers import RETRY_US
from quothlog.storage.filesystem import File, write_durably
from quothlog.storage.write_failure import storage_failed
from quothlog.transactions.transactions import LogTransactions
from quothwire.errors import error

SURPLUS_MAX = 1_000
"""Ids that the log has forgotten are kept up to so many, or as many as it knows, then removed together."""


class BoundKind(StrEnum):
    """The kind of an id."""

    PRODUCER = "p"
    APPLICATION = "a"


class Identity(NamedTuple):
    """A producer id, or the id of an application."""

    kind: BoundKind
    number: int


class Bindings:
    """The clients of the ids of one open topic. Owned by the topic. The file is read at the first use.

    fresh: the ids to `save`.
    """

    def __init__(self, log: Log, transactions: LogTransactions) -> None:
        self._log = log
        self._transactions = transactions
        self._path: Path = log.directory / BOUND_NAME
        self._owners: dict[Identity, str] | None = None
        self.fresh: list[Identity] = []
        self._file: File | None = None
        self._forget_at = SURPLUS_MAX

    def check(self, client: KnownClient, identity: Identity) -> bool:
        """Return True if an id is bound to a client, False if it is free.

        Raises ``denied`` if it is bound to another client.
        """
        owner = self._bound().get(identity)
        if owner is None or owner == client.name:
            return owner is not None
        what = "producer id" if identity.kind is BoundKind.PRODUCER else "application"
        text = f"another client has begun this {what}, not {client.name!r}"
        raise error("denied", text, f"nothing was done; begin another {what}")

    def admit(self, client: KnownClient, identity: Identity) -> None:
        """Bind the id of a batch to a client, unless it is bound to it. `save` has to follow.

        Raises ``denied`` if it is bound to another client, ``busy`` or ``quota_exceeded`` if the client has
        too many.
        """
        if not self.check(client, identity):
            self._check_quota(client, identity.kind)
            self._bound()[identity] = client.name
            self.fresh.append(identity)

    def save(self) -> None:
        """Write the ids of batches that were stored since the last call, and release those of others."""
        fresh, self.fresh = self.fresh, []
        owners = self._bound()
        known = self._known(fresh)
        for identity in {*fresh}.difference(known):
            del owners[identity]
        lines = [_line(identity, owners[identity]) for identity in known]
        if lines:
            try:
                self._open().append(lines)
            except OSError as problem:
                self._close()
                note("binding_failed", file=self._path, problem=problem.strerror)
        if len(owners) >= self._forget_at:
            self._forget()

    def close(self) -> None:
        """Sync and close the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.sync()
            self._close()

    # -- inside ---------------------------------------------------------------------------------------------

    def _bound(self) -> dict[Identity, str]:
        """Return the owners, read at the first call. A line that is not whole is skipped.

        The file is read whole, since an id that was not read would be free; `save` bounds what is in it.
        Raises ``storage_failed`` if it cannot be read: any client could take the ids in it.
        """
        if self._owners is None:
            try:
                with contextlib.closing(self._log.filesystem.open(self._path)) as file:
                    data = file.read(file.size(), 0)
            except FileNotFoundError:
                data = b""
            except OSError as problem:
                raise storage_failed(problem, self._path) from problem
            self._owners = dict(_parsed(data))
        return self._owners

    def _known(self, identities: Iterable[Identity]) -> list[Identity]:
        """Return the ids that the log knows, so that their owners count."""
        staged = self._transactions.staged_applications()
        return [one for one in identities if self._is_known(one, staged)]

    def _is_known(self, identity: Identity, staged: Set[int]) -> bool:
        appender = self._log.appender
        if identity.kind is BoundKind.PRODUCER:
            return appender.last_written(identity.number) is not None
        return identity.number in staged or appender.applications.newest(identity.number) >= 0

    def _check_quota(self, client: KnownClient, kind: BoundKind) -> None:
        """Raise if the client may not bind another id.

        Its producers count if they have written within a minute, its applications as long as they are known.
        """
        quota = Quota.PRODUCERS if kind is BoundKind.PRODUCER else Quota.APPLICATIONS
        if quota not in client.limits:
            return
        own = (one for one, owner in self._bound().items() if owner == client.name and one.kind is kind)
        if kind is BoundKind.APPLICATION:
            counted = self._known(own)
        else:
            recent = self._log.appender.clock.now() - RETRY_US
            counted = [one for one in own if (self._log.appender.last_written(one.number) or 0) > recent]
        client.check_limit(quota, len(counted))

    def _forget(self) -> None:
        """Remove the ids that the log has forgotten, and write the file anew.

        The next time is when there are twice as many: the cost for each id stays the same.
        """
        former = self._bound()
        owners = {one: former[one] for one in self._known(former)}
        self._close()
        self._owners = owners
        self._forget_at = max(SURPLUS_MAX, 2 * len(owners))
        try:
            lines = [_line(one, owner) for one, owner in owners.items()]
            write_durably(self._log.filesystem, self._path, lines)
        except OSError as problem:
            note("binding_failed", file=self._path, problem=problem.strerror)

    def _open(self) -> File:
        if self._file is None:
            filesystem = self._log.filesystem
            try:
                self._file = filesystem.open(self._path, append=True)
            except FileNotFoundError:
                self._file = filesystem.create(self._path)
        return self._file

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _line(identity: Identity, owner: str) -> bytes:
    return f"\n{identity.kind} {identity.number:016x} {owner}\n".encode()


def _parsed(data: bytes) -> Iterator[tuple[Identity, str]]:
    """Yield the ids and owners of the lines that are whole."""
    for line in data.decode("utf-8", "replace").split("\n")[:-1]:
        words = line.split(" ")
        if len(words) == 3 and words[0] in [*BoundKind] and len(words[1]) == 16:
            with contextlib.suppress(ValueError):
                yield Identity(BoundKind(words[0]), int(words[1], 16)), words[2]
