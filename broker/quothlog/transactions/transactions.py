"""The transactions of a log: what is staged, what is published, and publishing it.

A small transaction is appended in one write, a large one is a `Commit`. Both are visible, and let others
append, once they are on the disk. What is staged of a transaction that is stored has no use, so it is removed
whenever it is found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from quothlog.appender import Appended, Appender
from quothlog.file_format import BLOCK_BYTES, StagedName
from quothlog.retention import SHARE
from quothlog.storage.filesystem import Buffer
from quothlog.transactions.commit import Commit
from quothlog.transactions.staging import (
    CANNOT_BE_READ,
    Amount,
    Attempt,
    Staging,
    TransactionKey,
    headers_in,
    is_intact,
    readable,
)
from quothwire import batch
from quothwire.batch import Flag, Header
from quothwire.errors import QuothError, error
from quothwire.protocol.transaction import ANY, BATCHES_MAX, StagedPart, sequence_of

SMALL_BYTES = 4 * 2**20
SMALL_BATCHES = 1_024
"""A transaction within these limits, and a quarter of a segment, is appended, within 10 ms."""
NAMED_MAX = 9
"""Missing parts that an error names: so many fit into its text, see `binary_codec`."""

_TRANSACTION = int(Flag.TRANSACTION)


class TransactionState(NamedTuple):
    """The state of a transaction: published, staged or unknown.

    first, records: 0 if it is not published. newest: the highest published version of the application, -1 for
    none.
    """

    state: str
    first: int
    records: int
    staged: Amount
    newest: int


class LogTransactions:
    """The transactions of one log. Owned by the log's owner; made by `Log.transactions`.

    Applications are named by the producer ids of their batches.
    """

    def __init__(self, appender: Appender, files: Mapping[str, int], files_max: int) -> None:
        """files: names and sizes of staged batches. files_max: how many of them may lie there."""
        self._appender = appender
        self._applications = appender.applications
        self._clock = appender.clock
        self._staging = Staging(
            appender.filesystem, appender.clock, appender.directory, appender.log_id, files, appender.options,
            files_max,
        )  # fmt: skip
        self._at_work: Commit | None = None
        self._newest: TransactionKey | None = None
        """The transaction that got its pointers last."""
        self._appended: list[TransactionKey] = []
        for key in self._staging:
            if self._is_stored(key):
                self._appended.append(key)
        self.tidy()

    @property
    def staged_bytes(self) -> int:
        """Bytes of all batches that are staged."""
        return self._staging.bytes

    def is_at_work(self, application: int, version: int) -> bool:
        """Return True while this transaction is being published."""
        return self._at_work is not None and self._at_work.key == (application, version)

    # -- before it is published ---------------------------------------------------------------------------

    def stage(
        self, application: int, version: int, part: int, attempt: int, number: int, raw: Buffer
    ) -> Attempt:
        """Keep a batch for a transaction; returns what is staged of the attempt.

        number: batches of this attempt before it. A batch that is there is not kept twice. Raises
        `RequestError` ``bad_batch`` or ``too_large``, `Conflict` ``already_published``,
        ``forgotten_sequence``, ``out_of_sequence``, ``sequence_reused`` or ``staged_max``, `Unavailable`
        ``disk_low`` or ``busy``, or `BrokerFailure`; nothing was stored then.
        """
        self._appender.check_writable()
        header = batch.check(raw)
        named = header.flags & _TRANSACTION and header.producer == application
        if not named or header.sequence != sequence_of(version) or header.base or header.ordinal:
            raise error("bad_batch", "this is no batch of this transaction")
        if header.flags & Flag.END:
            raise error("bad_batch", "the log says which batch of a transaction is the last")
        self._check_decided(application, version)
        if self._applications.find(application, version) is not None:
            raise error("already_published", f"version {version} is published")
        self._applications.admit(application, self._clock.now())
        if self.is_at_work(application, version):
            raise _at_work()
        if number >= BATCHES_MAX:
            raise error("too_large", f"a transaction has at most {BATCHES_MAX} batches")
        name = StagedName(application, version, part, attempt, 0)
        try:
            return self._staging.stage(name, number, header, raw, self._appender.options)
        except (OSError, QuothError) as problem:
            raise self._appender.as_error(problem, len(raw)) from problem

    def abort(self, application: int, version: int) -> TransactionState:
        """Remove what is staged; returns the state of the transaction, with what was removed.

        Raises `Unavailable` ``busy`` while it is being published, `BrokerFailure`, or OSError.
        """
        self._appender.check_writable()  # after a failure, a publish that was decided may need what is staged
        key = TransactionKey(application, version)
        self._check_decided(application)
        if self.is_at_work(application, version):
            raise _at_work()
        amount = self._staging.remove(key)
        with suppress(QuothError):
            return self.standing(application, version)._replace(staged=amount)
        return TransactionState("unknown", 0, 0, amount, self._applications.newest(application))

    def standing(self, application: int, version: int) -> TransactionState:
        """Return the state of a transaction.

        Raises `Conflict` ``forgotten_sequence``, `Unavailable` ``busy`` or `BrokerFailure` if it is not known
        whether it is stored, or OSError.
        """
        self._check_decided(application)
        stored = self._applications.find(application, version)
        newest = self._applications.newest(application)
        amount = self._staging.amount(TransactionKey(application, version))
        if stored is not None:
            return TransactionState("published", stored.first, stored.records, Amount(0, 0, 0, 0), newest)
        return TransactionState("staged" if amount.parts else "unknown", 0, 0, amount, newest)

    def staged_applications(self) -> set[int]:
        """Return the applications of which batches are staged."""
        return {key.application for key in self._staging}

    def expire(self) -> Iterator[tuple[TransactionKey, Amount]]:
        """Remove what was not added to for `staged_max_age`; yields the transactions. Raises OSError."""
        self.tidy()
        end = self._clock.now() - self._appender.options.staged_age_us
        for key in self._staging:
            if self._staging.latest(key) <= end and not self.is_at_work(*key):
                yield key, self._staging.remove(key)

    def due(self) -> int | None:
        """Return when there will be something to `expire`, as a pointer; None if nothing is staged."""
        latest = [self._staging.latest(key) for key in self._staging]
        return min(latest) + self._appender.options.staged_age_us if latest else None

    # -- publishing ---------------------------------------------------------------------------------------

    def publish(
        self, application: int, version: int, parts: Sequence[StagedPart], newest: int = ANY
    ) -> Appended | Commit | None:
        """Publish the parts of a transaction, one behind the other.

        newest: the version that has to be the newest one of the application.

        A small one is appended: it is stored once the log is synced up to its last pointer. For a large one
        nothing was done yet. None: no parts were named, so what was staged is removed and nothing stored.
        Raises `Conflict` ``newest_differs``, ``not_staged`` or ``forgotten_sequence``, `RequestError`
        ``too_large``, `Unavailable`, `BrokerFailure`, or OSError; nothing was published then.
        """
        key = TransactionKey(application, version)
        self._check_decided(application)
        if (stored := self._applications.find(application, version)) is not None:
            return Appended(stored.first, stored.first + stored.records - 1, stored.records, True)
        self._appender.check_writable()
        if self._appender.is_publishing or (self._at_work and self._at_work.key.application == application):
            raise error(
                "busy", "a transaction is being published", "nothing was stored; try again in a moment"
            )
        if newest not in (ANY, found := self._applications.newest(application)):
            raise error("newest_differs", f"the newest version that is published is {found}, not {newest}")
        self._applications.admit(application, self._clock.now())
        chosen = self._find(key, parts)
        if not chosen:
            self._staging.drop(key)
            return None
        files = [file for one in chosen for file in one.files if file.batches]
        if self._is_large(chosen):
            if self._at_work is not None:
                raise error("busy", "another transaction is being published")
            appender = self._appender
            self._at_work = Commit(
                appender.filesystem, appender.directory, appender.log_id, key, files, appender.options
            )
            return self._at_work
        with readable():
            batches = list(self._read(chosen))
        self._newest = key
        appended = self._appender.append_transaction(batches)
        self._appended.append(key)
        return appended

    def place(self, commit: Commit) -> None:
        """Give a prepared commit its pointers; nothing else is appended until it has been adopted."""
        self._appender.place(commit)
        self._newest = commit.key

    def adopt(self, commit: Commit) -> Appended:
        """Go on behind a commit that has succeeded."""
        assert commit.tail is not None
        self._appender.adopt(commit)
        self._at_work = None
        self._appended.append(commit.key)
        self.tidy()
        first, records = commit.tail.first, commit.records
        return Appended(first, first + records - 1, records, False)

    def withdraw(self, commit: Commit, problem: OSError | QuothError) -> QuothError:
        """Go on without a commit that has failed; returns the error for the client."""
        self._at_work = None
        failure = self._appender.as_error(problem, 0)
        if (
            self._appender.write_failure.failure is None
        ):  # else it may have been decided, and its files are needed
            if commit.tail is not None:
                self._appender.withdraw()
            with suppress(OSError):
                commit.discard()
        return failure

    def tidy(self) -> None:
        """Remove what is left of stored transactions; what cannot be removed now is removed the next time."""
        if self._appender.is_publishing or self._appender.write_failure.failure is not None:
            return
        with suppress(OSError):
            while self._appended:
                self._staging.drop(self._appended.pop())
            self._staging.sweep()

    # -- inside -------------------------------------------------------------------------------------------

    def _check_decided(self, application: int, version: int = 0) -> None:
        """Raise if it is unknown whether this version, or a later one of the application, is stored.

        So it is while that is being published, and after a failure until the next opening.
        """
        newest = self._newest
        if newest is None or not self._appender.is_hiding:
            return
        if newest.application == application and newest.version >= version:
            self._appender.check_writable()
            raise _at_work()

    def _is_stored(self, key: TransactionKey) -> bool:
        """Return True if what is staged for this transaction has no use."""
        try:
            return self._applications.find(*key) is not None
        except QuothError:
            return True

    def _is_large(self, chosen: Collection[Attempt]) -> bool:
        """Return True if a transaction becomes segments of its own."""
        options = self._appender.options
        most = min(SMALL_BYTES, options.roll_bytes // SHARE)
        too_many = options.count_limit and sum(one.records for one in chosen) > options.count_limit
        too_long = sum(one.batches for one in chosen) > SMALL_BATCHES
        return bool(too_many or too_long or sum(one.bytes for one in chosen) > most)

    def _find(self, key: TransactionKey, parts: Sequence[StagedPart]) -> list[Attempt]:
        """Return the attempts of these parts. Raises ``not_staged`` with all that are missing or differ."""
        chosen: list[Attempt] = []
        missing: list[str] = []
        for part in parts:
            one = self._staging.attempt(key, part.part, part.attempt)
            batches, records = (one.batches, one.records) if one is not None else (0, 0)
            if one is None or (batches, records) != part[2:]:
                missing.append(
                    f"part {part.part} by attempt {part.attempt:016x}: {batches} batches of {part.batches}, "
                    f"{records} records of {part.records}"
                )
            else:
                chosen.append(one)
        if missing:
            more = f", and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
            raise error("not_staged", "; ".join(missing[:NAMED_MAX]) + more)
        return chosen

    def _read(self, chosen: Collection[Attempt]) -> Iterator[tuple[Header, Buffer]]:
        """Yield the batches of a small transaction, the last one with the flag END."""
        left = sum(one.batches for one in chosen)
        for staged in (file for one in chosen for file in one.files):
            file = self._appender.filesystem.open(staged.path)
            data = memoryview(file.read(staged.size - BLOCK_BYTES, BLOCK_BYTES))
            for offset, header in headers_in(file, staged.size, self._appender.log_id):
                begin = offset - BLOCK_BYTES
                raw: memoryview = data[begin : begin + header.size]
                if not is_intact(raw, header):
                    break
                left -= 1
                if not left:
                    flags = int(Flag.TRANSACTION | Flag.END)
                    raw = memoryview(batch.claimed(raw, header, header.producer, header.sequence, flags))
                    header = batch.parse_header(raw, 0)
                yield header, raw[batch.HEADER_BYTES :]
            file.close()
        if left:
            raise error("damaged", f"{left} staged batches cannot be read any more", CANNOT_BE_READ)


def _at_work() -> QuothError:
    return error("busy", "the transaction is being published", "nothing was done; try again in a moment")
