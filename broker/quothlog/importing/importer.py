"""Imports the logs of another program into something new: a log, or a data directory with topics.

    importer = Importer(lambda: open_topics(source), target)
    for report in importer.run(advance):
        print(report.topic, report.records)

The result is built beside the target and gets its name at the end, see `work_folder`. An import that was
ended in any way goes on when it is run again: finished logs stay, the one that was begun goes on behind its
last record. It has the same records, pointers and ordinals in the end as one that was never ended. A run may
name other topics than the one before: the result has those of the last run, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from quothlog.datadir import topic_file, topic_folder
from quothlog.datadir.topic_file import TopicFile
from quothlog.importing.import_report import ImportReport
from quothlog.importing.log_import import BeginAnew, LogImport
from quothlog.importing.source import (
    Advance,
    ImportFinding,
    ImportSource,
    LogSource,
    bytes_of,
    fingerprint,
    fingerprint_of_all,
    quoted_path,
    shown_path,
)
from quothlog.importing.work_folder import WorkFolder, is_begun, is_free
from quothlog.recovery.snapshot import DISK
from quothlog.storage.dirlock import TOPICS_NAME
from quothlog.storage.filesystem import FileSystem, write_durably
from quothlog.storage.write_failure import report_full_disk
from quothwire.errors import QuothError, error
from quothwire.settings import TopicSettings


class Importer:
    """One import. open_source: lists the source, also at the end, whether it has changed meanwhile.

    topics: the names of the only topics that are wanted, as the result has them; none for all. source: what
    is imported. Raises OSError, `NotFound` ``unknown_topic``, or `RequestError` ``bad_request`` if the target
    is no new or empty directory, lies in the source, or is the root of a file system.
    """

    def __init__(
        self,
        open_source: Callable[[], ImportSource],
        target: Path,
        topics: Sequence[str] = (),
        filesystem: FileSystem = DISK,
    ) -> None:
        self._open_source = open_source
        self._topics = sorted({*topics})
        self.source = self._wanted(open_source())
        self.target = target.resolve()
        self._filesystem = filesystem
        self._check_target()

    @property
    def bytes(self) -> int:
        """Bytes by which the import advances."""
        return sum(map(bytes_of, self.source.logs))

    @property
    def findings(self) -> Sequence[ImportFinding]:
        """The findings of the listing; those of a log are in its report."""
        return self.source.findings

    def run(self, advance: Advance) -> Iterator[ImportReport]:
        """Import; yields the report of each log when it is finished. The end of it finishes the import.

        Raises `Conflict` ``locked`` if another import into this target runs, or if the source has changed,
        `RequestError` ``bad_request`` if another one has left its folder or the target is in use,
        ``disk_low``, ``too_large``, ``storage_failed`` or OSError.
        """
        is_kept = _saying_what_is_kept(self._filesystem, self.target)
        with self._naming_the_way_out(), is_kept, closing(self._work_folder()) as work:
            if work.finished is not None:
                yield from work.finished
                work.finish(())
                return
            reports = []
            if self.source.has_topics:
                self._filesystem.make_directory(work.result / TOPICS_NAME)
            for log in self.source.logs:
                reports.append(self._import_one(work, log, advance))
                yield reports[-1]
            self._check_unchanged()
            if not is_free(self.target):
                raise self._in_use()
            if self.source.has_topics:
                self._discard_others(work)
            work.finish(reports)

    # -- inside -------------------------------------------------------------------------------------------

    @contextmanager
    def _naming_the_way_out(self) -> Iterator[None]:
        """Let the error of a record that is too large name the way to the other topics, if there are any."""
        try:
            yield
        except QuothError as problem:
            if problem.code != "too_large" or len(self.source.logs) < 2:
                raise
            hint = f"{problem.hint}; for now, run the import again with --topic for each of the other topics"
            raise error("too_large", problem.text, hint) from problem

    def _work_folder(self) -> WorkFolder:
        source = self.source
        identity = {"source": quoted_path(source.path.resolve()), "format": source.format}
        self._filesystem.make_directory(self.target.parent)
        files = fingerprint_of_all(source.logs)
        work = WorkFolder(self.target, identity, self._filesystem, self._topics or None, files)
        if work.finished is None and not is_free(self.target):
            work.close()
            raise self._in_use()
        return work

    def _import_one(self, work: WorkFolder, log: LogSource, advance: Advance) -> ImportReport:
        """Import one log, or take the report of it from an earlier run."""
        log_id, mark = work.log_id(log.topic), fingerprint(log)
        topic, folder = self._place(work, log)
        finished = work.begin(log_id, mark, folder)
        if finished is not None:
            advance(bytes_of(log))
            return finished
        counted = 0

        def count(size: int) -> None:
            nonlocal counted
            counted += size
            advance(size)

        try:
            report = self._fill(folder, topic, log, log_id, count)
        except BeginAnew:
            advance(-counted)
            work.discard(folder)
            report = self._fill_anew(folder, topic, log, log_id, advance)
        work.end(log_id, mark, report)
        return report

    def _place(self, work: WorkFolder, log: LogSource) -> tuple[TopicFile | None, Path]:
        """Return the topic of a log, None without topics, and its folder in the result."""
        if not self.source.has_topics:
            return None, work.result
        topic = TopicFile(log.topic, work.log_id(log.topic), TopicSettings())
        return topic, topic_folder.path_of(work.result, topic)

    def _discard_others(self, work: WorkFolder) -> None:
        """Discard the logs that earlier runs have left, and that this one has not imported."""
        logs = self.source.logs
        folders = {self._place(work, log)[1] for log in logs}
        work.discard_others(work.result / TOPICS_NAME, folders, {work.log_id(log.topic) for log in logs})

    def _fill_anew(
        self, folder: Path, topic: TopicFile | None, log: LogSource, log_id: int, advance: Advance
    ) -> ImportReport:
        """Import a log whose folder has been removed. Raises ``storage_failed`` if that is of no help."""
        try:
            return self._fill(folder, topic, log, log_id, advance)
        except BeginAnew as problem:
            raise error(
                "storage_failed", f"{shown_path(folder)}: {problem}", "is the disk sound?"
            ) from problem

    def _fill(
        self, folder: Path, topic: TopicFile | None, log: LogSource, log_id: int, advance: Advance
    ) -> ImportReport:
        """Make the folder of a log, as far as it is not there, and import the records that it lacks."""
        self._filesystem.make_directory(folder)
        if topic is not None:
            write_durably(self._filesystem, folder / topic_file.NAME, [topic_file.encode(topic)])
        others = topic_file.OTHERS if topic is not None else ()
        return LogImport(log, folder, self._filesystem, log_id=log_id, others=others).run(advance)

    def _wanted(self, source: ImportSource) -> ImportSource:
        """Leave out the logs that are not wanted. Raises `NotFound` ``unknown_topic``, or ``bad_request``."""
        if not self._topics:
            return source
        if not source.has_topics:
            raise error("bad_request", f"{shown_path(source.path)} is one log", "leave --topic away")
        names = [log.topic for log in source.logs]
        missing = [name for name in self._topics if name not in names]
        if missing:
            listed = ", ".join(map(repr, names[:_NAMES_MAX])) + ", ..." * (len(names) > _NAMES_MAX)
            text = f"{shown_path(source.path)} holds no topic {', '.join(map(repr, missing))}"
            raise error("unknown_topic", text, f"it holds {listed or 'none'}")
        return replace(source, logs=[log for log in source.logs if log.topic in self._topics])

    def _check_target(self) -> None:
        """Raise ``bad_request`` if the target cannot be one."""
        target, name = self.target, shown_path(self.target)
        if target.is_relative_to(self.source.path.resolve()):
            raise error("bad_request", f"{name} lies in the source", "give a target beside it")
        if target.is_mount():
            text = f"{name} is the root of a file system: the result is built beside it, and renamed"
            raise error("bad_request", text, "give a new directory in it")
        if not is_free(target) and not is_begun(target):
            raise self._in_use()

    def _in_use(self) -> QuothError:
        text = f"{shown_path(self.target)} is there and no empty directory"
        return error("bad_request", text, "give a target that is new or empty")

    def _check_unchanged(self) -> None:
        """Raise `Conflict` ``locked`` if the source is not as it was at the beginning."""
        now = {log.topic: fingerprint(log) for log in self._wanted(self._open_source()).logs}
        before = {log.topic: fingerprint(log) for log in self.source.logs}
        if now != before:
            names = sorted(name for name in {*now, *before} if now.get(name) != before.get(name))
            which = ", ".join(repr(name) for name in names[:_NAMES_MAX] if name)
            topics = f" (topics {which})" if which else ""
            text = f"{shown_path(self.source.path)} has changed while it was imported{topics}"
            raise error("locked", text, "stop the process that writes to it, and import again: it goes on")


@contextmanager
def _saying_what_is_kept(filesystem: FileSystem, target: Path) -> Iterator[None]:
    """Let the error of a full disk say what becomes of the import."""
    try:
        with report_full_disk(filesystem, target.parent, shown_path(target), KEPT):
            yield
    except QuothError as problem:
        if problem.code != "disk_low" or KEPT in (problem.hint or ""):
            raise
        raise error("disk_low", problem.text, f"{KEPT}; free some space and try again") from problem


KEPT = "what was imported is kept, and the same import goes on from there"
_NAMES_MAX = 5
