"""The manifest of an archive: its files, and the pointer up to which each topic is archived.

    _manifest.json
    {
      "checksum": "9c0fbd3a5e21d874",               xxh3-64 of what follows, as it is written here
      "manifest": {
        "archive": 1,                                the version of this format
        "commit": 17,                                how often it was replaced
        "logs": [{
          "topic": "orders", "log": "5be1...", "generation": 1,
          "until": 1767323045000001,                 everything up to this pointer is archived, or lost
          "ordinal": 1000,                           how many records the topic had ever held by then
          "lost": 0, "losses": [...],                records that were gone before they could be, newest last
          "files": [{"name": "topic=orders/day=...", "first": ..., "last": ..., "rows": ..., "bytes": ...,
                     "ordinal": ..., "hash": "..."}]
        }],
        "replaced": [{"name": ..., "at": ...}]       files that compaction has merged, kept for their readers
      }
    }

A file that it does not name does not belong to the archive. It is replaced atomically, so that every reader
sees the archive after one commit or another. Unknown keys are ignored, and dropped by the next commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from xxhash import xxh3_64_hexdigest

from quoth.spark.archive.fingerprint import MODULUS
from quothwire.errors import error
from quothwire.pointer import check_pointer

NAME = "_manifest.json"
VERSION = 1
LOSSES_MAX = 100
"""Losses of a log that are kept; all of them are counted. The oldest one may sum up several, see `_kept`."""

_OLDER = "has fingerprints of 128 bits: a program has made it from before this format was frozen"
_OLDER_HINT = (
    "nothing was changed; archive anew, into another folder: what topics do not hold any more is still here, "
    "as plain Parquet, and `quoth pipeline replay` takes each folder topic=... as a table"
)


class Lineage(NamedTuple):
    """The log of some records. generation: the number of the log among those of its topic."""

    topic: str
    log: int
    generation: int


class ArchivedFile(NamedTuple):
    """A file. first, last: pointers. ordinal: of its first record. hash: the fingerprint of its records."""

    name: str
    first: int
    last: int
    rows: int
    bytes: int
    ordinal: int
    hash: int


class ArchivedLoss(NamedTuple):
    """Records behind the pointer `after` and before `next` that could not be archived, see `quoth.Gap`."""

    after: int
    next: int
    records: int
    reason: str


class ReplacedFile(NamedTuple):
    """A file that was replaced by a compaction. at: when, as a pointer."""

    name: str
    at: int


T = TypeVar("T", ArchivedFile, ArchivedLoss, ReplacedFile)
_BY_FIRST = attrgetter("first")
_LOG_KEY = attrgetter("topic", "generation")


@dataclass(frozen=True)
class ArchivedLog:
    """The archived part of one log of a topic. A topic that is deleted and created again has another log.

    log: its id. generation: 1 for the first log of the topic, 2 for the next. until: all records up to this
    pointer are archived or lost. ordinal: the number of records up to there, -1 if it is unknown. files: in
    the order of their pointers.
    """

    topic: str
    log: int
    generation: int
    until: int = 0
    ordinal: int = -1
    lost: int = 0
    losses: tuple[ArchivedLoss, ...] = ()
    files: tuple[ArchivedFile, ...] = ()

    @property
    def lineage(self) -> Lineage:
        """The log without its files."""
        return Lineage(self.topic, self.log, self.generation)

    @property
    def rows(self) -> int:
        """The number of archived records."""
        return sum(file.rows for file in self.files)

    def grown(
        self, until: int, ordinal: int, files: Iterable[ArchivedFile], losses: Iterable[ArchivedLoss]
    ) -> ArchivedLog:
        """Return the log, archived up to a later pointer."""
        losses = tuple(losses)
        return replace(
            self,
            until=until,
            ordinal=ordinal,
            files=(*self.files, *sorted(files, key=_BY_FIRST)),
            lost=self.lost + sum(loss.records for loss in losses),
            losses=_kept((*self.losses, *losses)),
        )

    def merged(self, old: Iterable[ArchivedFile], new: ArchivedFile) -> ArchivedLog:
        """Return the log with one new file in place of several old ones."""
        gone = set(old)
        kept = [file for file in self.files if file not in gone]
        return replace(self, files=tuple(sorted([*kept, new], key=_BY_FIRST)))


@dataclass(frozen=True)
class ArchiveManifest:
    """An archive after one commit."""

    commit: int = 0
    logs: tuple[ArchivedLog, ...] = ()
    replaced: tuple[ReplacedFile, ...] = ()

    def newest(self, topic: str) -> ArchivedLog | None:
        """The newest log of a topic."""
        logs = (log for log in self.logs if log.topic == topic)
        return max(logs, key=attrgetter("generation"), default=None)

    def with_log(self, log: ArchivedLog) -> ArchiveManifest:
        """Return the manifest with this state of a log."""
        logs = {_LOG_KEY(one): one for one in (*self.logs, log)}
        return replace(self, logs=tuple(logs[key] for key in sorted(logs)))

    def encoded(self, commit: int) -> bytes:
        """The content of the file for the commit of this number."""
        logs = [_log_object(log) for log in self.logs]
        replaced = [one._asdict() for one in self.replaced]
        content = {"archive": VERSION, "commit": commit, "logs": logs, "replaced": replaced}
        text = json.dumps(content, ensure_ascii=False, indent=1)
        return f'{{"checksum": "{_checksum(text)}",\n"manifest": {text}}}\n'.encode()


def decoded(content: bytes, where: str) -> ArchiveManifest:
    """Decode the content of a file; where: its path. Raises `Damaged`, or ``unsupported_version``."""
    try:
        said = json.loads(content)
        body = said["manifest"]
        if said["checksum"] != _checksum(json.dumps(body, ensure_ascii=False, indent=1)):
            raise ValueError("its checksum does not match")
        if body["archive"] != VERSION:
            text = f"{where} is of version {body['archive']!r}, this program knows version {VERSION}"
            raise error("unsupported_version", text, "it was left as it is")
        logs = tuple(map(_log_of, body["logs"]))
        if any(file.hash >= MODULUS for log in logs for file in log.files):
            raise error("unsupported_version", f"{where} {_OLDER}", _OLDER_HINT)
        return ArchiveManifest(
            int(body["commit"]), logs, tuple(_known(ReplacedFile, one) for one in body["replaced"])
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise error(
            "damaged",
            f"{where} is no manifest of an archive: {type(problem).__name__}: {problem}",
            "nothing was changed; the files of the archive are all there: put a copy of the manifest back, "
            "or begin another archive",
        ) from None


def _log_object(log: ArchivedLog) -> dict[str, Any]:
    losses = [loss._asdict() for loss in log.losses]
    files = [{**file._asdict(), "hash": f"{file.hash:016x}"} for file in log.files]
    return {**vars(log), "log": f"{log.log:016x}", "losses": losses, "files": files}


def _log_of(said: dict[str, Any]) -> ArchivedLog:
    files = tuple(_known(ArchivedFile, {**one, "hash": int(one["hash"], 16)}) for one in said["files"])
    losses = tuple(_known(ArchivedLoss, one) for one in said["losses"])
    rest = {name: said[name] for name in ("topic", "generation", "ordinal", "lost")}
    until = check_pointer(said["until"])
    return ArchivedLog(log=int(said["log"], 16), until=until, losses=losses, files=files, **rest)


def _known(kind: type[T], said: Mapping[str, Any]) -> T:
    """Make a tuple of an object; ignores keys of later versions."""
    return kind(**{name: said[name] for name in kind._fields})


def _checksum(text: str) -> str:
    return xxh3_64_hexdigest(text.encode())


def _kept(losses: Sequence[ArchivedLoss]) -> tuple[ArchivedLoss, ...]:
    """The newest losses, and in front of them one for all older damage, where a trim has to stop."""
    if len(losses) <= LOSSES_MAX:
        return tuple(losses)
    newest = losses[1 - LOSSES_MAX :]
    damaged = [loss for loss in losses[: 1 - LOSSES_MAX] if loss.reason == "damaged"]
    if not damaged:
        return (losses[-LOSSES_MAX], *newest)
    records = sum(loss.records for loss in damaged)
    return (ArchivedLoss(damaged[0].after, damaged[-1].next, records, "damaged"), *newest)
