"""The topics of a data directory of Poe.

    DIR/topics/TOPIC/MICROSECONDS_data, _index, _lock

TOPIC is the topic's name, any bytes; MICROSECONDS the time when the segment was begun, a decimal number
below each pointer in it. Poe does not check the name: the segments of a topic ``..`` lie in DIR itself, and
those of ``.`` in DIR/topics.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote_from_bytes

from quothlog.appendix import segment_format
from quothlog.appendix.log_directory import AppendixFiles, AppendixLog
from quothlog.appendix.topic_names import topic_name
from quothlog.importing.source import ImportFinding, ImportSource, shown_path
from quothlog.storage.dirlock import TOPICS_NAME
from quothwire.errors import error

FORMAT = "poe"


def open_topics(path: Path) -> ImportSource:
    """List the topics of a data directory.

    Raises OSError, or `RequestError` ``bad_request`` if it has no folder `topics`, or two topics would get
    one name.
    """
    topics = path / TOPICS_NAME
    if path.is_dir() and not topics.is_dir():
        text = f"{shown_path(path)} has no folder {TOPICS_NAME!r}, so it is no data directory of Poe"
        raise error("bad_request", text, "give the directory that is Poe's setting `dir`")
    inside = AppendixFiles.of(topics)
    findings: list[ImportFinding] = inside.unknown(_unknown(inside))
    raws = [(_raw(folder), AppendixFiles.of(folder)) for folder in inside.folders]
    raws += [(b".", inside), (b"..", AppendixFiles.of(path))]
    logs: dict[str, AppendixLog] = {}
    for raw, files in raws:
        numbers = {prefix for prefix in files.prefixes if segment_format.is_number(prefix)}
        if not numbers:
            if raw not in (b".", b".."):
                text = f"{shown_path(files.directory)}: not imported, since it holds no segment of a topic"
                findings.append(ImportFinding(text))
            continue
        name = topic_name(raw)
        if name in logs:
            raise error("bad_request", f"two topics of {shown_path(path)} would get the name {name!r}")
        original = quote_from_bytes(raw, safe=" ") if name.encode() != raw else ""
        log = logs[name] = files.log(numbers, {"topic": name, "original": original})
        if raw not in (b".", b".."):
            others = [*_unknown(files), *(folder.name for folder in files.folders)]
            log.findings = [*log.findings, *files.unknown(others)]
        if original:
            text = f"topic {original} (percent-encoded) gets the name {name!r}, since its own is none here"
            log.findings = [*log.findings, ImportFinding(text)]
    return ImportSource(path, FORMAT, True, [logs[name] for name in sorted(logs)], findings)


def _raw(folder: Path) -> bytes:
    return bytes(Path(folder.name))


def _unknown(files: AppendixFiles) -> list[str]:
    """Return the names of files that belong to no segment of Poe."""
    strange = [one for one in files.prefixes if not segment_format.is_number(one)]
    suffixes = segment_format.SUFFIXES
    return [
        *files.others,
        *(one + suffix for one in strange for suffix in suffixes if files.has(one + suffix)),
    ]
