"""Opens a topic: makes its folder if it is new, opens its log, reports what recovery found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from quothd.config.config import Config
from quothd.datadir import catalog
from quothd.service.log_events import note
from quothd.topics.failures import log_failure
from quothd.topics.metadata import TopicMetadata
from quothd.topics.topic import Services, Topic
from quothlog import Log
from quothlog.appender import AHEAD_US
from quothlog.datadir import topic_file
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import FileSystem, NotDurable

REPORT_EVERY_S = 0.5


def open_topic(
    directory: Path,
    metadata: TopicMetadata,
    config: Config,
    filesystem: FileSystem,
    clock: Clock,
    services: Services,
    report: Callable[[int, int], None],
) -> Topic:
    """Open a topic; its metadata get a path if they have none yet.

    report: called now and then with the bytes that recovery has scanned, and those that it has to. Logs and
    raises a `QuothError`. A new topic leaves nothing behind then. After `NotDurable` the topic takes no
    writes any more: the next opening would find in memory what the disk may not hold.
    """
    topic, is_new = metadata.topic, metadata.path is None
    try:
        path = metadata.path = metadata.path or catalog.make(
            directory, topic, config.disk_free_min, filesystem=filesystem
        )
        try:
            log = Log.open(
                path,
                options=config.log_options(topic.settings),
                log_id=topic.log_id,
                filesystem=filesystem,
                clock=clock,
                others=topic_file.OTHERS,
                watch=_reporter(topic.name, report, clock),
            )
        except BaseException:
            if is_new:  # the next request will make another folder
                metadata.path = None
                with contextlib.suppress(OSError):
                    path = catalog.retire(path, filesystem)
                catalog.remove(path)
            raise
        try:
            if metadata.failure is not None:
                log.appender.write_failure.fail(metadata.failure)
            _log_findings(topic.name, log)
            opened = Topic(log, metadata, config, services, clock)
            try:
                opened.begin()
            except BaseException:
                opened.groups.discard()
                raise
        except BaseException:
            log.close()
            raise
        return opened
    except Exception as problem:
        failure = log_failure(problem, topic.name, metadata.path or directory)
        if isinstance(problem, NotDurable):
            metadata.failure = metadata.failure or failure
        raise failure from problem


def _log_findings(name: str, log: Log) -> None:
    findings = log.findings
    for file in findings.unknown_files:
        note("stray_ignored", topic=name, file=file)
    for file in findings.false_segments:
        note("stray_set_aside", topic=name, file=file)
    if (ahead := log.ahead_us) > AHEAD_US:
        note("pointers_ahead", topic=name, seconds=ahead // 1_000_000)
    if findings.torn_bytes or findings.damaged_bytes:
        found = {key: findings.counters()[key] for key in ("torn_bytes", "damaged_bytes")}
        note("topic_recovered", topic=name, **found, set_aside=findings.quarantined)
    if findings.rebuilt:
        note("derived_rebuilt", topic=name, segments=findings.rebuilt)
    if findings.lost_records:
        lost = {"records": findings.lost_records, "after": findings.lost_after, "until": findings.lost_until}
        note("records_lost", topic=name, **lost)


def _reporter(topic: str, report: Callable[[int, int], None], clock: Clock) -> Callable[[int, int], None]:
    """Return a watch that reports the progress of an opening every `REPORT_EVERY_S`."""
    due = clock.monotonic() + REPORT_EVERY_S

    def watch(done: int, size: int) -> None:
        nonlocal due
        if (now := clock.monotonic()) >= due:
            due = now + REPORT_EVERY_S
            report(done, size)
            note("topic_opening", topic=topic, bytes_done=done, bytes=size)

    return watch
