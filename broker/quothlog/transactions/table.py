"""The transaction table: the stored transactions of each application, so that none is stored twice.

It is derived from the batches, as the producer table is, and held in the bytes of a header block. An
application that the log forgot would be taken for a new one, and its last transaction stored again; so it is
forgotten only to make room for another one, once it was silent for a week. There are many names that are used
once, and only their last user asks for one again: of those the last ones are known.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from quothlog.file_format import TABLE_ENTRY, RowKind, TableRow
from quothwire.batch import Header
from quothwire.errors import error
from quothwire.protocol.transaction import is_once

VERSIONS_MAX = 64
"""Transactions of one application whose pointers are known."""
APPLICATIONS_MAX = 1_000
ONCE_MAX = 256
"""Names that are used once: no client repeats a transaction after so many others."""
SILENT_US = 7 * 86_400 * 1_000_000
"""An application that has published nothing for a week makes room for another one."""

_STORED_BYTES = TABLE_ENTRY.size


class StoredTransaction(NamedTuple):
    """The pointers of a stored transaction."""

    version: int
    first: int
    records: int
    batches: int


class TransactionTable:
    """The stored transactions of each application, the one first that was silent for longest."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, bytes] = OrderedDict()
        """What is stored of each, packed, the oldest first."""
        self.uncommitted: dict[int, bytes] = {}
        """What was known before the last `commit`, of those that were stored since then."""

    def __len__(self) -> int:
        return len(self._known)

    def find(self, application: int, version: int) -> StoredTransaction | None:
        """Find a stored transaction; None if it is not stored.

        Raises `Conflict` ``forgotten_sequence`` if a later one is stored, and this one is not known.
        """
        known = self._known.get(application, b"")
        for row in TABLE_ENTRY.iter_unpack(known):
            if row[0] == version:
                return StoredTransaction._make(row)
        if version < (newest := self.newest(application)):
            raise error(
                "forgotten_sequence",
                f"version {version} came after {newest} of the same application",
                "it was never published, or too long ago to tell its pointers; nothing was stored",
            )
        return None

    def newest(self, application: int) -> int:
        """Return the highest version that is stored, -1 for none."""
        known = self._known.get(application)
        return _newest(known).version if known else -1

    def admit(self, application: int, now: int) -> None:
        """Raise ``busy`` if there is no room for another application."""
        if is_once(application) or application in self._known or len(self._known) < APPLICATIONS_MAX:
            return
        lasting = self._lasting()
        if len(lasting) < APPLICATIONS_MAX:
            return
        silent = _newest(self._known[lasting[0]])
        if abs(now - silent.first) < SILENT_US:  # the clock may have stepped back far
            text = f"{APPLICATIONS_MAX} applications published to this topic within the last week"
            raise error("busy", text, "nothing was stored; use fewer names, or another topic")

    def store(self, header: Header) -> None:
        """Add a batch of a transaction that has its pointers."""
        self.add(header.producer, StoredTransaction(header.sequence - 1, header.base, header.records, 1))

    def add(self, application: int, stored: StoredTransaction) -> None:
        """Add a transaction, or more batches of the newest one."""
        known = self._known.get(application, b"")
        self.uncommitted.setdefault(application, known)
        if known and (last := _newest(known)).version == stored.version:
            records, batches = last.records + stored.records, last.batches + stored.batches
            known, stored = (
                known[:-_STORED_BYTES],
                StoredTransaction(last.version, last.first, records, batches),
            )
        self._known[application] = known + TABLE_ENTRY.pack(*stored)
        self._known.move_to_end(application)

    def commit(self) -> None:
        """Keep what was stored, which has reached the disk, and forget what is beyond the limits."""
        if not self.uncommitted:
            return
        for application in self.uncommitted:
            self._known[application] = _window(self._known[application])
        newcomers = not all(self.uncommitted.values())
        self.uncommitted.clear()
        if newcomers:  # a log that is opened commits every batch
            for application in self._surplus():
                del self._known[application]

    def undo(self) -> None:
        """Remove what was stored since the last commit, which has not reached the disk."""
        if not self.uncommitted:
            return
        self._known.update(self.uncommitted)
        self.uncommitted.clear()
        rows = sorted((row for row in self._known.items() if row[1]), key=lambda row: _newest(row[1]).first)
        self._known = OrderedDict(rows)

    def _lasting(self) -> list[int]:
        """Return the applications whose names are used again."""
        return [application for application in self._known if not is_once(application)]

    def _surplus(self) -> list[int]:
        """Return the applications above the limits: of each kind those that were silent for longest."""
        lasting, once = self._lasting(), list(filter(is_once, self._known))
        return lasting[: max(0, len(lasting) - APPLICATIONS_MAX)] + once[: max(0, len(once) - ONCE_MAX)]

    def rows(self) -> Iterator[TableRow]:
        """Yield the rows for a producer table: those that are left once all that was stored is committed.

        With more rows, a reader of the table would forget one too many for the next new application.
        """
        surplus = frozenset(self._surplus())
        for application, known in self._known.items():
            if application not in surplus:
                yield TableRow(RowKind.APPLICATION, application, _window(known))

    def take(self, row: TableRow) -> None:
        """Add a row of a producer table."""
        self._known[row.identity] = bytes(row.entries)


def _newest(known: bytes) -> StoredTransaction:
    return StoredTransaction._make(TABLE_ENTRY.unpack_from(known, len(known) - _STORED_BYTES))


def _window(known: bytes) -> bytes:
    """Return the versions whose pointers are known."""
    return known[-VERSIONS_MAX * _STORED_BYTES :]
