"""Binds producer ids and applications of one topic to the clients that have begun them.

Another client that publishes under such an id could make the next batch of its owner look like a repeated
one, and remove what that has staged. Ids can be read in batches, so they are no secret.

    producers.bound      p 0123456789abcdef alice          one line an id: p a producer, a an application
                         a fedcba9876543210 bob

A line is written after the first batch of an id, and synced when the topic hibernates: after a power cut, the
newest ids may belong to the client that uses them first. The same holds for ids that are older than the keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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

FILE_BYTES_MAX = 2**20
SURPLUS_MAX = 1_000
"""Ids that the log has forgotten are kept up to so many, then removed together."""


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

    def admit(self, client: KnownClient, identity: Identity) -> None:
        """Bind an id to a client, unless it is bound to it.

        Raises ``denied`` if it is bound to another client, ``busy`` or ``quota_exceeded`` if the client has
        too many.
        """
        owners = self._bound()
        owner = owners.get(identity)
        if owner == client.name:
            return
        what = "producer id" if identity.kind is BoundKind.PRODUCER else "application"
        if owner is not None:
            text = f"another client has begun this {what}, not {client.name!r}"
            hint = f"nothing was done; begin another {what}"
            raise error("denied", text, hint)
        self._check_quota(client, identity.kind)
        if len(owners) >= SURPLUS_MAX and len(owners) >= 2 * sum(map(self._is_known, owners)):
            owners = self._forget()
        owners[identity] = client.name
        self.fresh.append(identity)

    def save(self) -> None:
        """Write the ids of batches that were stored since the last call, and forget those of others."""
        fresh, self.fresh = self.fresh, []
        owners = self._bound()
        lines = []
        for identity in fresh:
            if self._is_known(identity):
                lines.append(_line(identity, owners[identity]))
            else:
                owners.pop(identity, None)
        if lines:
            try:
                self._open().append(lines)
            except OSError as problem:
                self._close()
                note("binding_failed", file=self._path, problem=problem.strerror)

    def close(self) -> None:
        """Sync and close the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.sync()
            self._close()

    # -- inside ---------------------------------------------------------------------------------------------

    def _bound(self) -> dict[Identity, str]:
        """Return the owners, read at the first call. A line that is not whole is skipped.

        Raises ``storage_failed`` if the file cannot be read: any client could take the ids in it.
        """
        if self._owners is None:
            try:
                with contextlib.closing(self._log.filesystem.open(self._path)) as file:
                    data = file.read(FILE_BYTES_MAX, 0)
            except FileNotFoundError:
                data = b""
            except OSError as problem:
                raise storage_failed(problem, self._path) from problem
            self._owners = dict(_parsed(data))
        return self._owners

    def _is_known(self, identity: Identity) -> bool:
        """Return True if the log knows the id, so that its owner counts."""
        appender = self._log.appender
        if identity.kind is BoundKind.PRODUCER:
            return appender.last_written(identity.number) is not None
        is_published = appender.applications.newest(identity.number) >= 0
        return is_published or self._transactions.has_staged(identity.number)

    def _check_quota(self, client: KnownClient, kind: BoundKind) -> None:
        """Raise if the client may not bind another id.

        Its producers count if they have written within a minute, its applications as long as they are known.
        """
        quota = Quota.PRODUCERS if kind is BoundKind.PRODUCER else Quota.APPLICATIONS
        if quota not in client.limits:
            return
        own = (one for one, owner in self._bound().items() if owner == client.name and one.kind is kind)
        if kind is BoundKind.APPLICATION:
            counted = (one for one in own if self._is_known(one))
        else:
            recent = self._log.appender.clock.now() - RETRY_US
            counted = (one for one in own if (self._log.appender.last_written(one.number) or 0) > recent)
        client.check_limit(quota, sum(1 for _ in counted))

    def _forget(self) -> dict[Identity, str]:
        """Remove the ids that the log has forgotten, and write the file anew; returns the other ones."""
        fresh = {*self.fresh}
        owners = {one: owner for one, owner in self._bound().items() if one in fresh or self._is_known(one)}
        self._close()
        self._owners = owners
        try:
            lines = [_line(one, owner) for one, owner in owners.items()]
            write_durably(self._log.filesystem, self._path, lines)
        except OSError as problem:
            note("binding_failed", file=self._path, problem=problem.strerror)
        return owners

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
