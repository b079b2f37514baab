"""Short ways to batches, logs and the files that they leave, for tests of the engine."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from xxhash import xxh3_64_intdigest

from kit.machine.processes import listing
from quothlog import Appended, Log
from quothlog.file_format import INDEX_SUFFIX
from quothlog.recovery import verify
from quothlog.recovery.verify import Damage, Unfinished
from quothlog.storage.filesystem import TEMPORARY_SUFFIX
from quothwire import batch
from quothwire.batch import Flag, Header
from quothwire.errors import QuothError, RequestError
from quothwire.record import Record, records_of

OpenLog = Callable[..., Log]
"""Opens a log with the options of `Log.open`; the fixture `open_log` closes it."""


def size_of(path: Path) -> int:
    """Return the size of a file, 0 once it is gone: a broker may remove it at any time."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def encoded(
    values: Sequence[bytes],
    producer: int = 0,
    sequence: int = 0,
    *,
    sparse: bool = False,
    ordinal: bool = False,
    start: bool = False,
) -> bytes:
    """A batch as a producer sends it."""
    flags = (Flag.SPARSE if sparse else 0) | (Flag.ORDINAL if ordinal else 0) | (Flag.START if start else 0)
    return batch.encode(values, producer=producer, sequence=sequence, flags=int(flags))


def sealed(header: Header, body: bytes, log_id: int = 0) -> bytes:
    """A batch of this body with the right checksums, whatever the body says."""
    check = xxh3_64_intdigest(body, header.kind << 48 | header.flags << 32 | header.records)
    return batch.stamp(header._replace(body_check=check), log_id) + body


def stamped(raw: bytes, log_id: int, base: int, ordinal: int = 0) -> bytes:
    """A batch as the log with this id stores it."""
    header = batch.parse_header(raw, 0)._replace(base=base, ordinal=ordinal)
    return batch.stamp(header, log_id) + raw[batch.HEADER_BYTES :]


def put(log: Log, *raws: bytes) -> list[Appended]:
    """Append batches as one burst, all of which have to be taken."""
    outcomes = log.append_batches(raws)
    assert all(isinstance(outcome, Appended) for outcome in outcomes), outcomes
    return [outcome for outcome in outcomes if isinstance(outcome, Appended)]


def outcome_of(log: Log, raw: bytes) -> Appended | str:
    """Append one batch; returns its pointers, or the code of its error."""
    (outcome,) = log.append_batches([raw])
    return outcome.code if isinstance(outcome, QuothError) else outcome


def fill(log: Log, batches: int, records: int = 1, size: int = 20) -> list[Record]:
    """Append distinct records in batches; returns them."""
    appended = []
    for _ in range(batches):
        ordinal = log.end_ordinal
        values = [b"%0*d" % (size, ordinal + i) for i in range(records)]
        first = log.append(values).first
        appended += [Record(first + i, value, None, {}) for i, value in enumerate(values)]
    return appended


def values(log: Log, after: int = 0) -> list[bytes]:
    """All values above a pointer."""
    return [record.value for record in log.read(after)]


def segments(directory: Path) -> list[Path]:
    """The segment files, oldest first."""
    return sorted(directory.glob("*.seg"))


def boundaries(path: Path, log_id: int) -> list[int]:
    """The offsets of all batches of an undamaged segment, and that of their end."""
    data = path.read_bytes()
    offset = data.index(batch.MAGIC)
    offsets = [offset]
    while data.startswith(batch.MAGIC, offset):
        offset += batch.parse_header(data, log_id, offset).size
        offsets.append(offset)
    return offsets


def verify_log(directory: Path, after: int = 0) -> tuple[list[Record], list[Damage], list[Unfinished]]:
    """Sort what `verify` yields by its kind."""
    found = list(verify.records(directory, after))
    return (
        [one for one in found if isinstance(one, Record)],
        [one for one in found if isinstance(one, Damage)],
        [one for one in found if isinstance(one, Unfinished)],
    )


def copy(directory: Path, target: Path) -> Path:
    """A log's directory as another process finds it when the owner dies at this moment."""
    shutil.copytree(directory, target)
    return target


def salvaged(log: Log, after: int = 0) -> list[Record]:
    """All records above a pointer whose batches check, as a reader gets them that steps over damage."""
    found = []
    while (extract := log.fetch(after)) is not None:
        for raw in batch.split(extract.data, log.log_id):
            with contextlib.suppress(RequestError):
                found += records_of(batch.decode(raw, log.log_id), after)
        assert extract.next > after
        after = extract.next
    return found


def made_since(directory: Path, before: Iterable[str]) -> list[str]:
    """List what has come into a directory of topics, but for indexes: those come when topics hibernate.

    before: its listing.
    """
    indexes = INDEX_SUFFIX, INDEX_SUFFIX + TEMPORARY_SUFFIX
    return [name for name in sorted({*listing(directory)} - {*before}) if not name.endswith(indexes)]
