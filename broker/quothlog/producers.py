"""The producer table: recognises a batch that comes a second time.

It is derived from the batches themselves, each of which has its producer's id and sequence. Every header
block has a snapshot of it, so opening a log reads the last segment only. The results are held in the bytes of
the snapshot: a roll writes up to 64,000 of them, and would take too long if it encoded each.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from quothlog.file_format import TABLE_ENTRY, RowKind, TableRow, decode_table, encode_table
from quothlog.transactions.table import StoredTransaction, TransactionTable
from quothwire.batch import Flag, Header
from quothwire.errors import error

RESULTS_MAX = 64
"""Results kept for one producer: as many batches may be on their way at once."""
PRODUCERS_MAX = 1_000
FORGET_AFTER_US = 7 * 86_400 * 1_000_000
"""A producer that was silent for a week is forgotten."""
RETRY_US = 60 * 1_000_000
"""A producer that wrote within a minute may be retrying, so it is never forgotten for a new one."""

_SPARSE, _START, _ORDINAL = int(Flag.SPARSE), int(Flag.START), int(Flag.ORDINAL)
_TRANSACTION = int(Flag.TRANSACTION)
_RESULT_BYTES = TABLE_ENTRY.size
_WINDOW_BYTES = RESULTS_MAX * _RESULT_BYTES

_new = tuple.__new__
"""Makes a named tuple of a row, in half the time of a call of its class."""


class Result(NamedTuple):
    """The place of a stored batch, and the checksum of its body."""

    sequence: int
    first: int
    records: int
    body_check: int

    def following(self, flags: int) -> int:
        """The sequence behind this one, by a numbering without holes."""
        return self.sequence + (self.records if flags & _ORDINAL else 1)


class _Producer:
    """The last results of one producer, packed, the oldest first, and the newest one unpacked."""

    __slots__ = ("newest", "results")

    def __init__(self, results: bytes | bytearray = b"") -> None:
        self.results = bytearray(results)
        if results:
            self.look()

    def look(self) -> None:
        """Unpack the newest result."""
        self.newest = Result._make(TABLE_ENTRY.unpack_from(self.results, len(self.results) - _RESULT_BYTES))


class ProducerTable:
    """The known batches: `admit` decides, `store` adds, `undo` removes what was not written.

    applications: the known transactions, whose batches `store` adds too.
    """

    def __init__(self) -> None:
        self.applications = TransactionTable()
        self.is_changed = False
        """Something was stored since the last `commit` or `undo`."""
        self._producers: OrderedDict[int, _Producer] = OrderedDict()
        self._stored: list[int] = []

    def __len__(self) -> int:
        return len(self._producers)

    def admit(self, header: Header, now: int) -> Result | None:
        """Return None for a new batch, its first result for a repeated one.

        Raises `Conflict`: ``out_of_sequence``, ``sequence_reused``, ``forgotten_sequence`` or
        ``unknown_producer``, or `Unavailable` ``busy``; nothing is to be stored then.
        """
        if not header.producer:
            return None
        producer = self._producers.get(header.producer)
        if producer is None:
            self._admit_stranger(header, now)
            return None
        newest = producer.newest
        if header.sequence <= newest.sequence:
            return _repeated(producer, header)
        if not header.flags & _SPARSE:
            following = newest.following(header.flags)
            begins = header.flags & _ORDINAL and header.flags & _START and header.sequence > following
            if header.sequence != following and not begins:
                raise error("out_of_sequence", f"sequence {header.sequence} came after {newest.sequence}")
        return None

    def last_written(self, identity: int) -> int | None:
        """Return the first pointer of a producer's newest batch, None for an unknown producer."""
        producer = self._producers.get(identity)
        return producer.newest.first if producer is not None else None

    def following(self, identity: int, flags: int) -> int:
        """Return the sequence that a producer's next batch must have, 0 for an unknown producer."""
        producer = self._producers.get(identity)
        return producer.newest.following(flags) if producer is not None else 0

    def store(self, header: Header) -> None:
        """Add a batch that has its pointers."""
        self.is_changed = True
        if header.flags & _TRANSACTION:
            self.applications.store(header)
            return
        if not header.producer:
            return
        producer = self._producers.get(header.producer)
        if producer is None:
            producer = self._producers[header.producer] = _Producer()
        newest = _new(Result, (header.sequence, header.base, header.records, header.body_check))
        producer.newest = newest
        producer.results += TABLE_ENTRY.pack(*newest)
        self._producers.move_to_end(header.producer)
        self._stored.append(header.producer)

    def learn(self, header: Header) -> None:
        """Add a batch that is on the disk."""
        self.store(header)
        self.commit()

    def store_transaction(self, application: int, stored: StoredTransaction) -> None:
        """Add a whole transaction."""
        self.is_changed = True
        self.applications.add(application, stored)

    def commit(self) -> None:
        """Keep the stored results, whose batches are on disk, and forget results beyond the window."""
        for identity in self._stored:
            producer = self._producers.get(identity)
            if producer is not None and len(producer.results) > _WINDOW_BYTES:
                del producer.results[:-_WINDOW_BYTES]
        self._stored.clear()
        if self.applications.uncommitted:
            self.applications.commit()
        self.is_changed = False
        while len(self._producers) > PRODUCERS_MAX:
            self._producers.popitem(last=False)

    def undo(self) -> None:
        """Remove the results stored since the last commit, whose batches are not on disk."""
        self.applications.undo()
        self.is_changed = False
        if not self._stored:
            return
        for identity in reversed(self._stored):
            producer = self._producers[identity]
            del producer.results[-_RESULT_BYTES:]
            if producer.results:
                producer.look()
            else:
                del self._producers[identity]
        self._stored.clear()
        # the producer that was silent for longest stands first again
        self._producers = OrderedDict(sorted(self._producers.items(), key=lambda row: row[1].newest.first))

    def encode(self, now: int) -> bytes:
        """Encode all producers that are not to be forgotten, as a header block holds them."""
        return encode_table((*self._living(now), *self.applications.rows()))

    @classmethod
    def decode(cls, snapshot: bytes) -> ProducerTable:
        """Decode a snapshot whose checksum has been verified. Raises `Damaged`."""
        table = cls()
        for row in decode_table(snapshot):
            if row.kind == RowKind.APPLICATION:
                table.applications.take(row)
            else:
                table._producers[row.identity] = _Producer(row.entries)
        return table

    def _living(self, now: int) -> Iterator[TableRow]:
        for identity, producer in self._producers.items():
            if producer.newest.first > now - FORGET_AFTER_US:
                yield TableRow(RowKind.PRODUCER, identity, producer.results)

    def _admit_stranger(self, header: Header, now: int) -> None:
        begins = header.flags & _START if header.flags & (_SPARSE | _ORDINAL) else header.sequence == 1
        if not begins:
            raise error("unknown_producer", f"sequence {header.sequence} of a producer that is not known")
        surplus = len(self._producers) - PRODUCERS_MAX
        if surplus >= 0:  # new producers of this group are counted once it is written
            silent = next(islice(self._producers.values(), surplus, None))
            if abs(now - silent.newest.first) < RETRY_US:  # the clock may have stepped back far
                raise error("busy", f"{PRODUCERS_MAX} producers wrote to this topic within the last minute")


def _repeated(producer: _Producer, header: Header) -> Result:
    known = list(map(Result._make, TABLE_ENTRY.iter_unpack(producer.results)))
    for result in known:
        if result.sequence == header.sequence:
            if (result.records, result.body_check) != (header.records, header.body_check):
                raise error("sequence_reused", f"sequence {header.sequence} was stored with other records")
            return result
    oldest, newest = known[0].sequence, known[-1].sequence
    if header.flags & (_SPARSE | _ORDINAL) and header.sequence > oldest:
        raise error("out_of_sequence", f"sequence {header.sequence} came after {newest}")
    raise error("forgotten_sequence", f"sequence {header.sequence} is too far behind {newest}")
