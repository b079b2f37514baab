"""`quoth pipeline archive`, `compact` and `verify`: topics as Parquet files, few large ones of many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from quothcli.cli.command import command, spread
from quothcli.cli.exit_status import say
from quothcli.cli.options import Timeout, Topics, Url
from quothcli.cli.quantities import size, span
from quothcli.cli.session import chosen
from quothcli.commands.pipeline.running import OF_SPARK, run

if TYPE_CHECKING:
    from quoth.spark.jobs.session import Job

_KEEP_REPLACED_S = 900.0
_FILE_BYTES = 128 * 2**20

_Archive = Annotated[
    str,
    typer.Argument(metavar="DIR", help="The archive's folder, where all of Spark can reach it."),
]
_Archived = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC", help="Names of topics, or patterns in quotes (default: all).", show_default=False
    ),
]
_KeepReplaced = Annotated[
    float,
    typer.Option(
        "--keep-replaced",
        metavar="SPAN",
        parser=span("--keep-replaced"),
        help="How long merged files stay for readers that have begun by the manifest before (default: 15m).",
        show_default=False,
    ),
]


def add(pipeline: typer.Typer) -> None:
    """Put `archive`, `compact` and `verify` into `quoth pipeline`."""
    command(
        pipeline,
        "archive",
        "quoth pipeline archive /mnt/archive 'orders.*'",
        "quoth pipeline archive /mnt/archive orders --trim --format json",
        "quoth pipeline archive /mnt/archive orders clicks --follow 1m",
    )(spread("spark", OF_SPARK)(archive))
    command(
        pipeline,
        "compact",
        "quoth pipeline compact /mnt/archive",
        "quoth pipeline compact /mnt/archive 'orders.*' --keep-replaced 1h",
    )(spread("spark", OF_SPARK)(compact))
    command(
        pipeline,
        "verify",
        "quoth pipeline verify /mnt/archive",
        "quoth pipeline verify /mnt/archive 'orders.*' --format json",
    )(spread("spark", OF_SPARK)(verify))


def archive(
    context: typer.Context,
    directory: _Archive,
    topics: Topics,
    follow: Annotated[
        float | None,
        typer.Option(
            "--follow",
            metavar="SPAN",
            parser=span("--follow", least=0.1),
            help="Go on for ever, looking so often for new records.",
        ),
    ] = None,
    trim: Annotated[
        bool, typer.Option("--trim", help="Let the topics go of what is archived and durable.")
    ] = False,
    fail_on_loss: Annotated[
        bool,
        typer.Option(
            "--fail-on-loss", help="End if records are gone before they could be archived, else count them."
        ),
    ] = False,
    file_bytes: Annotated[
        int,
        typer.Option(
            "--file-bytes",
            metavar="SIZE",
            parser=size("--file-bytes"),
            help="Cut topics into files of so many stored bytes (default: 128MiB).",
            show_default=False,
        ),
    ] = _FILE_BYTES,
    keep_replaced: _KeepReplaced = _KEEP_REPLACED_S,
    url: Url = None,
    timeout: Timeout = None,
    *,
    spark: dict[str, Any],
) -> int:
    """Keep topics as Parquet files, each record once.

    The first run takes all that is there, the next one what came since: it may be killed at any moment and
    be started again, by hand or by cron. Files lie in DIR/topic=NAME/day=YYYY-MM-DD; which of them count is
    said by DIR/_manifest.json, which is replaced when they are durable. Lost records make the exit status 1,
    and so do files of earlier runs that are missing or have another size.
    """
    asked = chosen(context, url, timeout, spark["form"])

    def prepare() -> Job:
        from quoth.spark.archive.archiver import Policy
        from quoth.spark.jobs import archive

        return archive.job(
            directory,
            topics,
            url=asked.address,
            timeout=asked.patience,
            policy=Policy(fail_on_loss, trim, file_bytes, keep_replaced),
            follow=follow,
            tell=lambda text: say(f"quoth: {text}"),
        )

    return run(context, "archive", prepare, **spark)


def compact(
    context: typer.Context,
    directory: _Archive,
    topics: _Archived = None,
    target_bytes: Annotated[
        int,
        typer.Option(
            "--target-bytes",
            metavar="SIZE",
            parser=size("--target-bytes"),
            help="Merge smaller files until they have so many bytes (default: 128MiB).",
            show_default=False,
        ),
    ] = _FILE_BYTES,
    keep_replaced: _KeepReplaced = _KEEP_REPLACED_S,
    *,
    spark: dict[str, Any],
) -> int:
    """Merge the small files of an archive into large ones, day by day.

    Count and contents are compared with the manifest on the way. Readers that go by it see the old files or
    the new ones. What killed runs have left is removed. Files that are missing or damaged are named, are left
    as they are and make the exit status 1; only `verify` reads those that are not merged.
    """

    def prepare() -> Job:
        from quoth.spark.jobs import compact

        return compact.job(directory, topics or (), target_bytes=target_bytes, keep_replaced=keep_replaced)

    return run(context, "compact", prepare, **spark)


def verify(
    context: typer.Context, directory: _Archive, topics: _Archived = None, *, spark: dict[str, Any]
) -> int:
    """Compare every file of an archive with its manifest.

    Presence, size, checksums, the number of records, their order and their fingerprint. A line for each file
    that is missing, unreadable or damaged, then one for each topic. Such a file makes the exit status 1.
    Nothing is locked and nothing is changed.
    """

    def prepare() -> Job:
        from quoth.spark.jobs import verify

        return verify.job(directory, topics or ())

    return run(context, "verify", prepare, **spark)
