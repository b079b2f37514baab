"""`quoth pipeline replay`: Parquet files back into topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from quothcli.cli.command import SharedOptions, as_typed, command, group
from quothcli.cli.options import WithBroker
from quothcli.cli.quantities import size_option
from quothcli.commands.pipeline.running import OnSpark, report, run

if TYPE_CHECKING:
    from quoth.spark.jobs.session import Job, JobSummary


def _column(name: str, text: str) -> Any:
    return Annotated[str | None, Option(f"--{name}-column", metavar="NAME", help=text)]


_WISH = {
    "topics": Annotated[
        list[str] | None,
        Option(
            "--topic",
            metavar="TOPIC",
            help="Only these topics of an archive: names, patterns; may be repeated.",
        ),
    ],
    "to": Annotated[
        list[str] | None,
        Option(
            "--to",
            metavar="TOPIC",
            help="Into which topic: a name, or OLD=NEW for one of several; may be repeated (default for an "
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
        Option(
            "--application",
            metavar="NAME",
            help="Know this replay by a name, not by what it replays: with another one all goes there again.",
        ),
    ],
}
_Wish = Annotated[dict[str, Any], SharedOptions(_WISH, as_typed)]
_Path = Annotated[
    str,
    Argument(
        metavar="INPUT",
        help="An archive, a Parquet file or a folder of such, where all of Spark can reach it.",
    ),
]
_Since = Annotated[
    str | None,
    Option("--since", metavar="TIME", help="Begin at this time: 2026-01-02T03:04:05Z, or a pointer."),
]
_Until = Annotated[
    str | None, Option("--until", metavar="TIME", help="Stop before this time, given as for --since.")
]
_Speed = Annotated[
    float | None,
    Option(
        "--speed",
        metavar="X",
        help="Let X seconds of original time pass in one, in steps of a second (default: no waiting).",
    ),
]
_SameTopic = Annotated[
    bool, Option("--same-topic", help="Even into what was archived, which then has all of it twice.")
]
_DryRun = Annotated[bool, Option("--dry-run", help="Tell what would be done.")]
_ChunkBytes = Annotated[
    int, size_option("--chunk-bytes", "Publish so much at once, at most (default: 256MiB).")
]

app = group()


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
    path: _Path,
    since: _Since = None,
    until: _Until = None,
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

    def prepare() -> Job | JobSummary:
        from quoth.spark.jobs import replay
        from quoth.spark.replay.chunking import ChunkLimits
        from quoth.spark.replay.inputs import ReplayRequest

        return replay.job(
            path,
            request=ReplayRequest(**wish),
            since=since,
            until=until,
            url=session.broker.url,
            timeout=session.timeout_s,
            limits=ChunkLimits(bytes=chunk_bytes),
            speed=speed,
            same_topic=same_topic,
            dry_run=dry_run,
            tell=report,
        )

    return run(session, spark, "replay", prepare)
