"""`quoth pipeline replay`: Parquet files back into topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from quothcli.cli.command import Run, command, spread
from quothcli.cli.exit_status import say
from quothcli.cli.options import Timeout, Url
from quothcli.cli.quantities import size
from quothcli.cli.session import chosen
from quothcli.commands.pipeline.running import OF_SPARK, run

if TYPE_CHECKING:
    from quoth.spark.jobs.session import Job, JobSummary


def _column(name: str, text: str) -> Any:
    return Annotated[str | None, typer.Option(f"--{name}-column", metavar="NAME", help=text)]


_WISH = {
    "topics": Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="Only these topics of an archive: names, patterns; may be repeated.",
        ),
    ],
    "to": Annotated[
        list[str] | None,
        typer.Option(
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
        typer.Option(
            "--application",
            metavar="NAME",
            help="Know this replay by a name, not by what it replays: with another one all goes there again.",
        ),
    ],
}
_BOUNDS = {
    "since": Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Begin at this time: 2026-01-02T03:04:05Z, or a pointer."
        ),
    ],
    "until": Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Stop before this time, given as for --since."),
    ],
}
_HOW = {
    "speed": Annotated[
        float | None,
        typer.Option(
            "--speed",
            metavar="X",
            help="Let X seconds of original time pass in one, in steps of a second (default: no waiting).",
        ),
    ],
    "same_topic": Annotated[
        bool | None,
        typer.Option("--same-topic", help="Even into what was archived, which then has all of it twice."),
    ],
    "dry_run": Annotated[bool | None, typer.Option("--dry-run", help="Tell what would be done.")],
}


def add(pipeline: typer.Typer) -> None:
    """Put `replay` into `quoth pipeline`."""
    made = command(
        pipeline,
        "replay",
        "quoth pipeline replay /mnt/archive --topic orders --to orders-of-old",
        "quoth pipeline replay /mnt/archive --url tcp://new:5555 --since 2026-01-02 --until 2026-01-03",
        "quoth pipeline replay events.parquet --to events --value-column json --time-column at --speed 60",
    )
    function: Run = replay
    for name, options in (("wish", _WISH), ("bounds", _BOUNDS), ("how", _HOW), ("spark", OF_SPARK)):
        function = spread(name, options)(function)
    made(function)


def replay(
    context: typer.Context,
    path: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="An archive, a Parquet file or a folder of such, where all of Spark can reach it.",
        ),
    ],
    wish: dict[str, Any],
    bounds: dict[str, Any],
    how: dict[str, Any],
    chunk_bytes: Annotated[
        int,
        typer.Option(
            "--chunk-bytes",
            metavar="SIZE",
            parser=size("--chunk-bytes"),
            help="Publish so much at once, at most (default: 256MiB).",
            show_default=False,
        ),
    ] = 256 * 2**20,
    url: Url = None,
    timeout: Timeout = None,
    *,
    spark: dict[str, Any],
) -> int:
    """Put archived records, or any Parquet files, into topics, once.

    They come in their order, in chunks that are published whole. The same command goes on with a run that
    was broken off, and stores nothing after one that was not: the topic itself knows how far it is. Each
    record of an archive has its original pointer in the header quoth-pointer. Rows of a table come file by
    file in the order of their names; its files must not change before all of it is replayed.
    """
    asked = chosen(context, url, timeout, spark["form"])
    wish |= {name: tuple(wish[name] or ()) for name in ("topics", "to")}

    def prepare() -> Job | JobSummary:
        from quoth.spark.jobs import replay
        from quoth.spark.replay.chunking import ChunkLimits
        from quoth.spark.replay.inputs import ReplayRequest

        return replay.job(
            path,
            request=ReplayRequest(**wish),
            **bounds,
            url=asked.address,
            timeout=asked.patience,
            limits=ChunkLimits(bytes=chunk_bytes),
            speed=how["speed"],
            same_topic=bool(how["same_topic"]),
            dry_run=bool(how["dry_run"]),
            tell=lambda text: say(f"quoth: {text}"),
        )

    return run(context, "replay", prepare, **spark)
