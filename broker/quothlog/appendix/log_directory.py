"""The segments of one log of appendix, which lie in one directory, in the order of their numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quothlog.appendix import segment_format
from quothlog.appendix.merge import merged
from quothlog.appendix.segment_format import DATA_SUFFIX, INDEX_SUFFIX, LOCK_SUFFIX
from quothlog.appendix.segment_reader import AppendixSegment
from quothlog.importing.source import (
    Advance,
    ImportedRecord,
    ImportFinding,
    ImportSource,
    Report,
    SourceFile,
    not_imported,
    shown_path,
)
from quothwire.errors import error

FORMAT = "appendix"

_NAMES_MAX = 5


@dataclass
class AppendixLog:
    """The segments of one log, oldest first, and the findings of their listing."""

    segments: Sequence[AppendixSegment]
    topic: str = ""
    original: str = ""
    findings: Sequence[ImportFinding] = ()

    @property
    def files(self) -> list[SourceFile]:
        """See `LogSource.files`."""
        return [file for one in self.segments for file in one.files]

    def records(self, advance: Advance, report: Report) -> Iterator[ImportedRecord]:
        """See `LogSource.records`. The records of segments that overlap are merged by their pointers."""
        for finding in self.findings:
            report(finding)
        return merged(one.records(advance, report) for one in self.segments)


@dataclass
class AppendixFiles:
    """The files of a directory. prefixes: of all that are appendix's, locks included; others: other names."""

    directory: Path
    prefixes: set[str] = field(default_factory=set)
    others: list[str] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    _files: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, directory: Path) -> AppendixFiles:
        """List a directory. Raises OSError."""
        found = cls(directory)
        for path in sorted(directory.iterdir()):
            prefix = segment_format.prefix_of(path)
            if path.is_dir():
                found.folders.append(path)
            elif prefix is None or not path.is_file():
                found.others.append(path.name)
            else:
                found.prefixes.add(prefix)
                found._files[path.name] = path
        return found

    def log(self, prefixes: Collection[str], names: Mapping[str, str] | None = None) -> AppendixLog:
        """Return the log of these prefixes. names: its `topic` and `original`."""
        ordered = sorted(prefixes, key=_order)
        filled = [one for one in ordered if self._size(one + DATA_SUFFIX)]
        segments, findings = [], []
        for prefix in ordered:
            data, index = self._file(prefix + DATA_SUFFIX), self._file(prefix + INDEX_SUFFIX)
            if data is not None:
                segments.append(
                    AppendixSegment(data, index, is_newest=prefix == filled[-1] if filled else True)
                )
            elif index is not None and index.bytes:
                records = index.bytes // segment_format.ENTRY_BYTES
                path = shown_path(self.directory / (prefix + DATA_SUFFIX))
                text = f"{path} is missing: {records} records, which its index lists, are lost"
                findings.append(ImportFinding(text, is_damage=True))
        locks = [one for one in ordered if one + LOCK_SUFFIX in self._files]
        if locks:
            path = shown_path(self.directory / (locks[0] + LOCK_SUFFIX))
            more = f" and {len(locks) - 1} more are" if len(locks) > 1 else " is"
            text = f"{path}{more} there: its process was killed, or runs, and has to be stopped"
            findings.append(ImportFinding(text))
        return AppendixLog(segments, **(names or {}), findings=findings)

    def unknown(self, names: Collection[str]) -> list[ImportFinding]:
        """Make the finding of files that are not imported."""
        return not_imported(self.directory, names, "no file of a log")

    def has(self, name: str) -> bool:
        """Return True if there is a file of appendix of this name."""
        return name in self._files

    def _file(self, name: str) -> SourceFile | None:
        return SourceFile.at(self._files[name]) if name in self._files else None

    def _size(self, name: str) -> int:
        file = self._file(name)
        return file.bytes if file is not None else 0


def open_log(path: Path) -> ImportSource:
    """List the one log of a directory, or that of a path without ``_data`` at its end.

    Raises OSError, or `RequestError` ``bad_request`` if the files are those of several logs, or of none.
    """
    is_prefix = not path.is_dir() and path.with_name(path.name + DATA_SUFFIX).is_file()
    files = AppendixFiles.of(path.parent if is_prefix else path)
    prefixes = {path.name} if is_prefix else files.prefixes
    if not prefixes:
        text = f"{shown_path(path)} holds no file of appendix: a log is PREFIX{DATA_SUFFIX}"
        raise error("bad_request", text, "give the directory that holds such files")
    if len(prefixes) > 1 and not all(map(segment_format.is_number, prefixes)):
        names = sorted(shown_path(Path(one or "(empty)")) for one in prefixes)
        listed = ", ".join(names[:_NAMES_MAX]) + ", ..." * (len(names) > _NAMES_MAX)
        text = f"{shown_path(path)} holds several logs, since not all prefixes are numbers: {listed}"
        raise error("bad_request", text, "import each into a target of its own: give DIRECTORY/PREFIX")
    log = files.log(prefixes)
    others = [] if is_prefix else [*files.others, *(folder.name for folder in files.folders)]
    return ImportSource(path, FORMAT, has_topics=False, logs=[log], findings=files.unknown(others))


def _order(prefix: str) -> tuple[int, str]:
    return (int(prefix) if segment_format.is_number(prefix) else -1, prefix)
