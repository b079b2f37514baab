"""`quoth pipeline`: the jobs that run on Spark, as commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from quothcli.cli.command import SharedOptions, argument, as_typed, command, group, option
from quothcli.cli.options import Since, Topics, WithBroker, WithoutBroker
from quothcli.cli.quantities import size_option, span_option
from quothcli.commands.pipeline.running import OnSpark, broker_of, installed, run
from quothcli.printing.output import Format
from quothcli.printing.text import printable

_KEEP_REPLACED_S = 900.0
_FILE_BYTES = 128 * 2**20

_Archive = Annotated[str, argument("DIR", "The archive's folder, where all of Spark can reach it.")]
_Archived = Annotated[
    list[str] | None,
    argument("TOPIC", "Names of topics, or patterns in quotes (default: all).", show_default=False),
]
_Follow = Annotated[
    float | None, span_option("--follow", "Go on for ever, looking so often for new records.", least=0.1)
]
_Trim = Annotated[bool, option("--trim", "Trim the topics up to what is archived and durable.")]
_FailOnLoss = Annotated[
    bool, option("--fail-on-loss", "End if records are gone before they could be archived, else count them.")
]
_FileBytes = Annotated[
    int, size_option("--file-bytes", "Cut topics into files of so many stored bytes (default: 128MiB).")
]
_TargetBytes = Annotated[
    int, size_option("--target-bytes", "Merge smaller files until they have so many bytes (default: 128MiB).")
]
_KeepReplaced = Annotated[
    float,
    span_option(
        "--keep-replaced",
        "How long merged files stay for readers that have begun by the manifest before (default: 15m).",
    ),
]
_Directories = Annotated[
    list[Path],
    argument("DIR", "Embedded logs, topics' folders, data directories, where all of Spark can read them."),
]
_Window = Annotated[str, option("--window SPAN", "The length of a window: 10s, 1m, 1h, 1d.")]
_Until = Annotated[str | None, option("--until TIME", "Stop before this time.")]
_Out = Annotated[str | None, option("--out DIR", "Keep windows, gaps and lags of groups there, as Parquet.")]
_FollowWindows = Annotated[
    float | None, span_option("--follow", "Go on for ever, looking so often for ended windows.", least=0.1)
]
_Checkpoint = Annotated[
    str | None, option("--checkpoint DIR", "Keeps the progress of --follow, for the next one.")
]


def _column(name: str, text: str) -> Any:
    return Annotated[str | None, option(f"--{name}-column NAME", text)]


_WISH = {
    "topics": Annotated[
        list[str] | None,
        option("--topic TOPIC", "Only these topics of an archive: names, patterns; may be repeated."),
    ],
    "to": Annotated[
        list[str] | None,
        option(
            "--to TOPIC",
            "Into which topic: a name, or OLD=NEW for one of several; may be repeated (default for an "
            "archive: of the same name).",
        ),
    ],
    "value": _column("value", "Of a table: the values, text or bytes (default value)."),
    "key": _column("key", "Of a table: the keys (default key, if it is there; '' for none)."),
    "headers": _column("headers", "Of a table: the headers (default headers, if it is there; '' for none)."),
    "time": _column("time", "Of a table: when each record was, for --since, --until and --speed."),
    "pointer": _column("pointer", "Of a table: original pointers, which go into the header quoth-pointer."),
    "name": Annotated[
        str | None,
        option(
            "--application NAME",
            "Know this replay by a name, not by what it replays: with another one all goes there again.",
        ),
    ],
}
_Wish = Annotated[dict[str, Any], SharedOptions(_WISH, as_typed)]
_Input = Annotated[
    str, argument("INPUT", "An archive, a Parquet file or a folder of such, where all of Spark can reach it.")
]
_ReplayedSince = Annotated[
    str | None, option("--since TIME", "Begin at this time: 2026-01-02T03:04:05Z, or a pointer.")
]
_ReplayedUntil = Annotated[str | None, option("--until TIME", "Stop before this time, given as for --since.")]
_Speed = Annotated[
    float | None,
    option(
        "--speed X", "Let X seconds of original time pass in one, in steps of a second (default: no waiting)."
    ),
]
_SameTopic = Annotated[
    bool, option("--same-topic", "Even into what was archived, which then has all of it twice.")
]
_DryRun = Annotated[bool, option("--dry-run", "Tell what would be done.")]
_ChunkBytes = Annotated[
    int, size_option("--chunk-bytes", "Publish so much at once, at most (default: 256MiB).")
]

app = group("Jobs on Spark: look after topics too large for one process.")


@command(
    app,
    "audit",
    "quoth pipeline audit /var/lib/quoth",
    "quoth pipeline audit /mnt/a /mnt/b --master 'local[8]' --out audit-of-today",
)
def audit(
    session: WithoutBroker,
    spark: OnSpark,
    directories: _Directories,
    only: Annotated[str | None, option("--topic TOPIC", "Only this topic.")] = None,
    out: Annotated[
        str | None, option("--out DIR", "Keep all segments and all findings there, as Parquet.")
    ] = None,
) -> int:
    """Verify every checksum of every segment, with or without a broker.

    A line for each finding: damage, or a note. Then one for each log. Damage makes the exit status 1, as in
    `quoth log verify`. Nothing is locked and nothing is changed.
    """

    with installed():
        from quoth.spark.jobs import audit

        job = audit.job(directories, topic=only, out=out)

    return run(session, spark, "audit", job)


@command(
    app,
    "archive",
    "quoth pipeline archive /mnt/archive 'orders.*'",
    "quoth pipeline archive /mnt/archive orders --trim --format json",
    "quoth pipeline archive /mnt/archive orders clicks --follow 1m",
)
def archive(
    session: WithBroker,
    spark: OnSpark,
    directory: _Archive,
    topics: Topics,
    follow: _Follow = None,
    trim: _Trim = False,
    fail_on_loss: _FailOnLoss = False,
    file_bytes: _FileBytes = _FILE_BYTES,
    keep_replaced: _KeepReplaced = _KEEP_REPLACED_S,
) -> int:
    """Keep topics as Parquet files, each record once.

    The first run takes all that is there, the next one what came since: it may be killed at any moment and
    be started again, by hand or by cron. Files lie in DIR/topic=NAME/day=YYYY-MM-DD; those that count are
    listed in DIR/_manifest.json, which is replaced when they are durable. Lost records make the exit status
    1, and so do files of earlier runs that are missing or have another size.
    """

    with installed(), session.naming_key():
        from quoth.spark.archive.archiver import Policy
        from quoth.spark.jobs import archive

        job = archive.archiving(
            directory,
            topics,
            broker=broker_of(session),
            policy=Policy(fail_on_loss, trim, file_bytes, keep_replaced),
            follow=follow,
        )

    return run(session, spark, "archive", job)


@command(
    app,
    "verify",
    "quoth pipeline verify /mnt/archive",
    "quoth pipeline verify /mnt/archive 'orders.*' --format json",
)
def verify(session: WithoutBroker, spark: OnSpark, directory: _Archive, topics: _Archived = None) -> int:
    """Compare every file of an archive with its manifest.

    Presence, size, checksums, the number of records, their order and their fingerprint. A line for each file
    that is missing, unreadable or damaged, then one for each topic. Such a file makes the exit status 1.
    Nothing is locked and nothing is changed.
    """

    with installed():
        from quoth.spark.jobs import archive

        job = archive.verification(directory, topics or ())

    return run(session, spark, "verify", job)


@command(
    app,
    "compact",
    "quoth pipeline compact /mnt/archive",
    "quoth pipeline compact /mnt/archive 'orders.*' --keep-replaced 1h",
)
def compact(
    session: WithoutBroker,
    spark: OnSpark,
    directory: _Archive,
    topics: _Archived = None,
    target_bytes: _TargetBytes = _FILE_BYTES,
    keep_replaced: _KeepReplaced = _KEEP_REPLACED_S,
) -> int:
    """Merge the small files of an archive into large ones, day by day.

    Count and contents are compared with the manifest on the way. Readers that go by it see the old files or
    the new ones. Leftovers of killed runs are removed. Files that are missing or damaged are named, are left
    as they are and make the exit status 1; only `verify` reads those that are not merged.
    """

    with installed():
        from quoth.spark.jobs import archive

        job = archive.compaction(
            directory, topics or (), target_bytes=target_bytes, keep_replaced=keep_replaced
        )

    return run(session, spark, "compact", job)


@command(
    app,
    "replay",
    "quoth pipeline replay /mnt/archive --topic orders --to orders-of-old",
    "quoth pipeline replay /mnt/archive --url tcp://new:5555 --since 2026-01-02 --until 2026-01-03",
    "quoth pipeline replay events.parquet --to events --value-column json --time-column at --speed 60",
)
def replay(
    session: WithBroker,
    spark: OnSpark,
    wish: _Wish,
    path: _Input,
    since: _ReplayedSince = None,
    until: _ReplayedUntil = None,
    speed: _Speed = None,
    chunk_bytes: _ChunkBytes = 256 * 2**20,
    same_topic: _SameTopic = False,
    dry_run: _DryRun = False,
) -> int:
    """Put archived records, or any Parquet files, into topics, once.

    They come in their order, in chunks that are published whole. The same command goes on with a run that
    was broken off, and stores nothing after one that was not: the topic itself holds the progress. Each
    record of an archive has its original pointer in the header quoth-pointer. Rows of a table come file by
    file in the order of their names; its files must not change before all of it is replayed.
    """
    wish |= {name: tuple(wish[name] or ()) for name in ("topics", "to")}

    with installed(), session.naming_key():
        from quoth.spark.jobs import replay
        from quoth.spark.replay.chunking import ChunkLimits
        from quoth.spark.replay.inputs import ReplayRequest

        job = replay.job(
            path,
            request=ReplayRequest(**wish),
            since=since,
            until=until,
            broker=broker_of(session),
            limits=ChunkLimits(bytes=chunk_bytes),
            speed=speed,
            same_topic=same_topic,
            dry_run=dry_run,
        )

    return run(session, spark, "replay", job)


@command(
    app,
    "stats",
    "quoth pipeline stats orders --since -1h",
    "quoth pipeline stats 'orders.*' --window 1d --format json",
    "quoth pipeline stats orders --follow 5 --checkpoint stats-of-orders --out orders-by-minute",
)
def stats(
    session: WithBroker,
    spark: OnSpark,
    topics: Topics,
    window: _Window = "1m",
    since: Since = None,
    until: _Until = None,
    out: _Out = None,
    follow: _FollowWindows = None,
    checkpoint: _Checkpoint = None,
) -> int:
    """Tell what topics hold, window by window.

    A line for each window with records: how many and how large, rates, different keys (about: within 3 % in
    two cases of three, exactly up to 1,023), the largest record, records that are missing, records behind the
    newest one; --format json and --out tell more. Then a line for each group and named cursor of the topics:
    how many records it has not finished, and for how long. With --follow a window is printed once a record
    lies behind it, and the lag of each group whenever it looks. Damaged records make the exit status 1.
    """

    with installed(), session.naming_key():
        from quoth.spark.jobs import stats

        stats.refuse_together(follow, until, checkpoint)
        broker, printer = broker_of(session), session.printer

        def write(lines: str) -> None:
            printer.line("\n".join(map(printable, lines.split("\n"))))
            printer.flush()

        if follow is None:
            job = stats.job(topics, broker=broker, window=window, since=since, until=until, out=out)
        else:
            job = stats.following(
                topics,
                every=follow,
                checkpoint=checkpoint,
                broker=broker,
                window=window,
                since=since,
                out=out,
                show=stats.shown(write, as_json=printer.form is Format.JSON),
            )
    return run(session, spark, "stats", job)
