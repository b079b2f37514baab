"""The ways to store and to read records in one process, each as a program would write it.

queuefka, an ancestor of Quoth in Go, compared itself with LevelDB, Bolt and plain writes. LMDB stands here
for Bolt, which has its design in Go. As there, a database gets the number of a record as its key; but its
bytes sort as the numbers do, so that every store appends. The plain file gets the same number and the value,
by one call where queuefka made two.

Reads include opening, since a `Reader` opens with its first read. Writes include neither opening nor closing,
but what their level promises, such as the last sync.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from quothbench.embedded.work import (
    NUMBER,
    Comparison,
    EmbeddedWay,
    Measure,
    QueuefkaFigure,
    StorageLevel,
    TimeUsed,
    Workload,
)
from quothlog import Log, Reader, Writer
from quothlog.writer import FLUSH_RECORDS
from quothwire.batch import BATCH_RECORDS_MAX
from quothwire.errors import error

GATHER_S = 600.0
"""Longer than a measurement: only `flush` and a full buffer write."""
_FILE = "values"


# -- the log ------------------------------------------------------------------------------------------------


def write_gathered(directory: Path, work: Workload, flush_records: int = BATCH_RECORDS_MAX) -> TimeUsed:
    """Write through a `Writer`, which syncs whenever so many records, or a MiB, are gathered."""
    with Writer(directory, flush_records=flush_records, flush_seconds=GATHER_S) as writer:
        write, began = writer.write, TimeUsed.now()
        for value in work.values:
            write(value)
        writer.flush()
        return began.until_now()


def write_batches(directory: Path, work: Workload) -> TimeUsed:
    """Write through a `Writer` that syncs each batch."""
    return write_gathered(directory, work, work.batch)


def append(directory: Path, work: Workload, *, batched: bool = False, sync: bool = False) -> TimeUsed:
    """Append to a `Log`, and sync after each call if that is asked for."""
    appended: Sequence[Any] = work.batches if batched else work.values
    with Log.open(directory) as log:
        began = TimeUsed.now()
        for one in appended:
            log.append(one)
            if sync:
                log.sync()
        return began.until_now()


def store_log(directory: Path, work: Workload) -> TimeUsed:
    """Store the records to read as a `Writer` does by default."""
    return write_gathered(directory, work, FLUSH_RECORDS)


def read_records(directory: Path, work: Workload) -> TimeUsed:
    """Read an object for each record."""
    began = TimeUsed.now()
    with Reader(directory) as reader:
        return _look_at_all(work, (len(record.value) for record in reader), began)


def read_columns(directory: Path, work: Workload) -> TimeUsed:
    """Read the values of each batch as a list."""
    began = TimeUsed.now()
    with Reader(directory) as reader:
        return _look_at_all(work, (len(value) for one in reader.batches() for value in one.values), began)


def _look_at_all(work: Workload, sizes: Iterable[int], began: TimeUsed) -> TimeUsed:
    """Read all values; return the time since they began. Raises `BrokerFailure` if not all were found."""
    found = sum(sizes)
    took = began.until_now()
    if found != len(work.values) * work.size:
        raise error("internal", f"{found:,} bytes were read instead of {len(work.values) * work.size:,}")
    return took


# -- LevelDB ------------------------------------------------------------------------------------------------


def put_each(directory: Path, work: Workload, *, sync: bool = False) -> TimeUsed:
    """Put one record after the other into LevelDB."""
    with _leveldb(directory) as database:
        put, began = database.put, TimeUsed.now()
        for value, key in zip(work.values, _keys(), strict=False):
            put(key, value, sync=sync)
        return began.until_now()


def put_batches(directory: Path, work: Workload, *, sync: bool = False) -> TimeUsed:
    """Put batches into LevelDB, each of them whole or not at all."""
    batches = work.batches
    with _leveldb(directory) as database:
        keys, began = _keys(), TimeUsed.now()
        for values in batches:
            with database.write_batch(sync=sync) as batch:
                put = batch.put
                for value, key in zip(values, keys, strict=False):
                    put(key, value)
        return began.until_now()


def iterate(directory: Path, work: Workload) -> TimeUsed:
    """Iterate over LevelDB, which does not compare checksums unless it is asked to."""
    began = TimeUsed.now()
    with _leveldb(directory) as database, closing(database.iterator(include_key=False)) as values:
        return _look_at_all(work, map(len, values), began)


@contextmanager
def _leveldb(directory: Path) -> Iterator[Any]:
    import plyvel  # may be missing

    with closing(plyvel.DB(str(directory), create_if_missing=True)) as database:
        yield database


# -- LMDB ---------------------------------------------------------------------------------------------------


def commit_each(directory: Path, work: Workload, *, sync: bool = False) -> TimeUsed:
    """Put one record after the other into LMDB, each in a transaction of its own."""
    with _lmdb(directory, work, sync=sync) as database:
        begin, began = database.begin, TimeUsed.now()
        for value, key in zip(work.values, _keys(), strict=False):
            with begin(write=True) as transaction:
                transaction.put(key, value, append=True)
        return began.until_now()


def commit_batches(directory: Path, work: Workload, *, sync: bool = False) -> TimeUsed:
    """Put batches into LMDB, a transaction each."""
    return _commit(directory, work, work.batches, sync=sync)


def commit_once(directory: Path, work: Workload) -> TimeUsed:
    """Put all records into LMDB in one transaction, whose end syncs."""
    return _commit(directory, work, [work.values], sync=True)


def scan(directory: Path, work: Workload) -> TimeUsed:
    """Read LMDB with a cursor. It has no checksums."""
    began = TimeUsed.now()
    with _lmdb(directory, work) as database, database.begin() as transaction, transaction.cursor() as cursor:
        return _look_at_all(work, map(len, cursor.iternext(keys=False)), began)


def _commit(directory: Path, work: Workload, batches: Sequence[Sequence[bytes]], *, sync: bool) -> TimeUsed:
    with _lmdb(directory, work, sync=sync) as database:
        keys, began = _keys(), TimeUsed.now()
        for values in batches:
            with database.begin(write=True) as transaction:
                put = transaction.put
                for value, key in zip(values, keys, strict=False):
                    put(key, value, append=True)
        return began.until_now()


@contextmanager
def _lmdb(directory: Path, work: Workload, *, sync: bool = True) -> Iterator[Any]:
    import lmdb  # may be missing

    with closing(lmdb.open(str(directory), map_size=work.map_bytes, sync=sync)) as database:
        yield database


# -- a plain file -------------------------------------------------------------------------------------------


def write_buffered(directory: Path, work: Workload) -> TimeUsed:
    """Write to a file of Python, which gathers some KiB; sync at the end."""
    with (directory / _FILE).open("wb") as file:
        write, began = file.write, TimeUsed.now()
        for value, key in zip(work.values, _keys(), strict=False):
            write(key + value)
        file.flush()
        _sync(file.fileno())
        return began.until_now()


def write_each(directory: Path, work: Workload, *, sync: bool = False) -> TimeUsed:
    """Write to a file by a call of the system for each record."""
    with (directory / _FILE).open("wb", buffering=0) as file:
        write, number, began = os.write, file.fileno(), TimeUsed.now()
        for value, key in zip(work.values, _keys(), strict=False):
            write(number, key + value)
            if sync:
                _sync(number)
        return began.until_now()


def write_joined(directory: Path, work: Workload, *, sync: bool = False) -> TimeUsed:
    """Write to a file by a call of the system for each batch, whose bytes are joined."""
    batches = work.batches
    with (directory / _FILE).open("wb", buffering=0) as file:
        number, keys, began = file.fileno(), _keys(), TimeUsed.now()
        for values in batches:
            os.write(number, b"".join([key + value for value, key in zip(values, keys, strict=False)]))
            if sync:
                _sync(number)
        return began.until_now()


def read_buffered(directory: Path, work: Workload) -> TimeUsed:
    """Read record by record what a file of Python reads ahead. There are no checksums."""
    size, began = NUMBER.size + work.size, TimeUsed.now()
    with (directory / _FILE).open("rb") as file:
        records = iter(partial(file.read, size), b"")
        return _look_at_all(work, (len(record[NUMBER.size :]) for record in records), began)


def _sync(descriptor: int) -> None:
    """Make a file survive a loss of power, as the log does."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def _keys() -> Iterator[bytes]:
    """Yield the numbers from 0 on, as keys. They stand second where they are zipped, so that none is lost."""
    return map(NUMBER.pack, count())


# -- by level -----------------------------------------------------------------------------------------------


def _quoth(name: str, measure: Measure, **more: Any) -> EmbeddedWay:
    return EmbeddedWay("quoth", name, measure, **more)


def _plyvel(name: str, measure: Measure, **more: Any) -> EmbeddedWay:
    return EmbeddedWay("leveldb", name, measure, "plyvel", **more)


def _py_lmdb(name: str, measure: Measure, **more: Any) -> EmbeddedWay:
    return EmbeddedWay("lmdb", name, measure, "lmdb", **more)


def _plain(name: str, measure: Measure, **more: Any) -> EmbeddedWay:
    return EmbeddedWay("file", name, measure, **more)


COMPARISONS = (
    Comparison(
        StorageLevel.MEMORY,
        (
            _quoth("Writer.write", write_gathered, queuefka=QueuefkaFigure("queuefka", 322, 79)),
            _py_lmdb("put, one transaction", commit_once, queuefka=QueuefkaFigure("bolt", 4_923)),
            _plain("open(..., 'wb')", write_buffered, queuefka=QueuefkaFigure("bufio", 106)),
        ),
    ),
    Comparison(
        StorageLevel.WRITTEN,
        (
            _quoth("Log.append", append, queuefka=QueuefkaFigure("queuefka", None, 598)),
            _plyvel("put", put_each, queuefka=QueuefkaFigure("leveldb", 13_752)),
            _py_lmdb("put, a transaction each", commit_each),
            _plain("os.write", write_each, queuefka=QueuefkaFigure("os.Write", 5_125)),
        ),
    ),
    Comparison(
        StorageLevel.WRITTEN,
        (
            _quoth("Log.append", partial(append, batched=True)),
            _plyvel("write_batch", put_batches),
            _py_lmdb("put, a transaction", commit_batches),
            _plain("os.write", write_joined),
        ),
        batched=True,
    ),
    Comparison(
        StorageLevel.SYNCED,
        (
            _quoth("Log.append, sync", partial(append, sync=True)),
            _plyvel("put", partial(put_each, sync=True)),
            _py_lmdb("put, a transaction each", partial(commit_each, sync=True)),
            _plain("os.write, fdatasync", partial(write_each, sync=True)),
        ),
    ),
    Comparison(
        StorageLevel.SYNCED,
        (
            _quoth("Log.append, sync", partial(append, batched=True, sync=True)),
            _quoth("Writer.write", write_batches),
            _plyvel("write_batch", partial(put_batches, sync=True)),
            _py_lmdb("put, a transaction", partial(commit_batches, sync=True)),
            _plain("os.write, fdatasync", partial(write_joined, sync=True)),
        ),
        batched=True,
    ),
    Comparison(
        StorageLevel.READ,
        (
            _quoth("Reader", read_records, fill=store_log, queuefka=QueuefkaFigure("queuefka", 316, 100)),
            _quoth("Reader.batches", read_columns, fill=store_log),
            _plyvel("iterator", iterate, fill=put_batches),
            _py_lmdb("cursor", scan, fill=commit_once),
            _plain("open(..., 'rb')", read_buffered, fill=write_buffered),
        ),
    ),
)
"""What is measured in turn: ways of the same level, with as many records a call."""
