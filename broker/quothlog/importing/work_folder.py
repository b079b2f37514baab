"""The folder in which an import builds its result: after any end it goes on, and no half result is left.

    TARGET.importing/lock           held while an import runs
    TARGET.importing/import.json    the source, and which topics of it are imported; written first
    TARGET.importing/logs/ID.json   a log that was begun: the state of its files, and at its end its report
    TARGET.importing/result/        what TARGET becomes
    TARGET.importing/discarded/     a log that is begun anew, until it is removed

The source, and the choice of its topics, may be another one in each run. So a run discards the logs that it
has not imported before it finishes: first the row, whose report would vouch for them, then the folder.

At the end the state gets all reports, `result` is renamed to TARGET, and this folder is removed. So a state
with reports and without `result` is that of an import of which only the removal is left to be done.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from hashlib import blake2b
from pathlib import Path
from typing import Any

from quothlog.datadir import topic_file
from quothlog.file_format import LOCK_NAME
from quothlog.importing.import_report import ImportReport
from quothlog.importing.source import shown_path
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.filesystem import TEMPORARY_SUFFIX, FileSystem, durable_names, write_durably
from quothwire.errors import QuothError, error

SUFFIX = ".importing"
VERSION = 1
_STATE, _LOGS, _RESULT, _DISCARDED = "import.json", "logs", "result", "discarded"


class WorkFolder:
    """The folder of the import into one target, locked until `close`.

    identity: names the source, in JSON. topics: those of it that are wanted, None for all. files: another
    text as soon as the files of the source are other ones. finished: the reports of an import of these topics
    that is finished, None before that. Raises `Conflict` ``locked``, `RequestError` ``bad_request`` if the
    folder is of another import or of none, or if the target has been finished with other topics, `Damaged`,
    or OSError.
    """

    def __init__(
        self,
        target: Path,
        identity: Mapping[str, Any],
        filesystem: FileSystem,
        topics: Sequence[str] | None,
        files: str,
    ) -> None:
        self.path = target.with_name(target.name + SUFFIX)
        self.result = self.path / _RESULT
        self.finished: list[ImportReport] | None = None
        self._target = target
        self._identity = {"version": VERSION, **identity}
        self._topics = None if topics is None else [*topics]
        self._files = files
        self._filesystem = filesystem
        self._check_kind()
        filesystem.make_directory(self.path)
        self._lock = DirectoryLock(self.path)
        try:
            self._seed = self._begin()
            filesystem.make_directory(self.path / _LOGS)
            if self.finished is None:
                filesystem.make_directory(self.result)
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Unlock the folder."""
        self._lock.release()

    def log_id(self, topic: str) -> int:
        """Return the id of the log of a topic, the same in each run."""
        digest = blake2b(f"{self._seed} {topic}".encode(), digest_size=8).digest()
        return (int.from_bytes(digest) >> 1) or 1

    def begin(self, log_id: int, fingerprint: str, folder: Path) -> ImportReport | None:
        """Return the report of a log that is finished; else begin it, or go on with it.

        folder: that of the log, removed if the log was begun from other files than those of now.
        """
        row = self._read(self._row(log_id))
        if row is not None and row.get("files") == fingerprint:
            return ImportReport.of_row(row["report"]) if row["report"] is not None else None
        self.discard(folder)
        self._write(self._row(log_id), {"files": fingerprint, "report": None})
        return None

    def end(self, log_id: int, fingerprint: str, report: ImportReport) -> None:
        """Keep the report of a log that is finished."""
        self._write(self._row(log_id), {"files": fingerprint, "report": report.to_row()})

    def discard(self, folder: Path) -> None:
        """Remove the folder of a log. All of it loses its name at once, and is removed then."""
        discarded = self.path / _DISCARDED
        _remove(discarded)
        if folder.exists():
            with durable_names(self._filesystem, self.path):
                self._filesystem.rename(folder, discarded)
            _remove(discarded)

    def discard_others(self, topics: Path, folders: Collection[Path], log_ids: Collection[int]) -> None:
        """Discard the folders in `topics`, and the rows, of all logs but these.

        An end in between leaves a folder without a row, which is begun anew or discarded by the next run.
        """
        kept = {self._row(log_id) for log_id in log_ids}
        rows = [path for path in (self.path / _LOGS).iterdir() if path not in kept]
        if rows:
            with durable_names(self._filesystem, self.path / _LOGS):
                for row in rows:
                    self._filesystem.remove(row)
        for folder in sorted({*topics.iterdir()} - {*folders}):
            self.discard(folder)

    def finish(self, reports: Sequence[ImportReport]) -> None:
        """Give the result the name of the target, unless it has it, and remove this folder.

        Raises OSError if something stands there that is no empty directory.
        """
        if self.finished is None:
            rows = [one.to_row() for one in reports]
            self._write_state(self._seed, rows)
            self.finished = [*reports]
        if self.result.exists():
            with durable_names(self._filesystem, self._target.parent), self._durable():
                self._filesystem.rename(self.result, self._target)
        self._remove_all()

    # -- inside -------------------------------------------------------------------------------------------

    def _check_kind(self) -> None:
        """Raise ``bad_request`` if something else has the name of this folder."""
        if not self.path.exists() and not self.path.is_symlink():
            return
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else {""}
        if self.path.is_symlink() or (_STATE not in names and names - {LOCK_NAME, _STATE + TEMPORARY_SUFFIX}):
            text = f"{shown_path(self.path)}, where the import would work, is something else"
            raise error("bad_request", text, "move it away, or give another target")

    def _begin(self) -> str:
        """Read the state of an earlier run, or write the first one; returns the seed."""
        state = self._read(self.path / _STATE)
        if state is not None:
            self._check_identity(state)
            seed, reports = str(state["seed"]), state.get("reports")
            if reports is None:
                return seed
            has_same_topics = state.get("topics") == self._topics
            if self.result.exists():
                if has_same_topics and state.get("files") == self._files:
                    self.finished = [ImportReport.of_row(row) for row in reports]
                else:
                    self._write_state(seed, None)  # it goes on, with the logs that it has
                return seed
            if not is_free(self._target):
                if not has_same_topics:
                    raise self._in_use()
                self.finished = [ImportReport.of_row(row) for row in reports]
                return seed
            _remove(self.path / _LOGS)  # its result has been removed, so it is imported again
        seed = secrets.token_hex(8)
        self._write_state(seed, None)
        return seed

    def _in_use(self) -> QuothError:
        text = f"{shown_path(self._target)} is there already, imported with other topics"
        hint = f"run that import again, which only removes {shown_path(self.path)}, or give another target"
        return error("bad_request", text, hint)

    def _write_state(self, seed: str, rows: Sequence[Mapping[str, Any]] | None) -> None:
        """Write the state. rows: the reports, None before the end."""
        choice = {"topics": self._topics, "files": self._files}
        self._write(self.path / _STATE, {**self._identity, **choice, "seed": seed, "reports": rows})

    def _check_identity(self, state: Mapping[str, Any]) -> None:
        """Raise ``bad_request`` if a state is that of another import."""
        if any(state.get(name) != value for name, value in self._identity.items()):
            text = f"{shown_path(self.path)} holds an import of something else, which is not finished"
            raise error("bad_request", text, "run that one again, remove its folder, or give another target")

    def _durable(self) -> AbstractContextManager[None]:
        return durable_names(self._filesystem, self.path)

    def _remove_all(self) -> None:
        """Remove this folder; the state last, which says to a run after an end in between that it is done."""
        _remove(self.path / _DISCARDED)
        _remove(self.path / _LOGS)
        with self._durable():
            self._filesystem.remove(self.path / _STATE)
        _remove(self.path)

    def _row(self, log_id: int) -> Path:
        return self.path / _LOGS / f"{log_id:016x}.json"

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        write_durably(self._filesystem, path, [topic_file.checked_line(content)])

    def _read(self, path: Path) -> dict[str, Any] | None:
        """Read a file of this folder, None without one. Raises `Damaged`."""
        try:
            file = self._filesystem.open(path)
        except FileNotFoundError:
            return None
        with closing(file):
            line = topic_file.line_of(file.read(file.size(), 0))
        if line is None:
            text = f"{shown_path(path)} does not check"
            raise error("damaged", text, f"remove {shown_path(self.path)}, and import again")
        found: dict[str, Any] = json.loads(line)
        return found


def is_free(target: Path) -> bool:
    """Return True if there is nothing at a path, or an empty directory."""
    return not target.exists() or (target.is_dir() and next(target.iterdir(), None) is None)


def is_begun(target: Path) -> bool:
    """Return True if an import into a target was begun, and has not removed its folder."""
    return (target.with_name(target.name + SUFFIX) / _STATE).exists()


def _remove(folder: Path) -> None:
    """Remove a folder as far as possible."""
    shutil.rmtree(folder, ignore_errors=True)
