"""`quoth pipeline archive`, `compact` and `verify`: topics as Parquet files, few large ones of many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from quothcli.cli.command import command, group
from quothcli.cli.options import Topics, WithBroker, WithoutBroker
from quothcli.cli.quantities import size_option, span_option
from quothcli.commands.pipeline.running import OnSpark, report, run

if TYPE_CHECKING:
    from quoth.spark.jobs.session import Job

_KEEP_REPLACED_S = 900.0
_FILE_BYTES = 128 * 2**20

_Archive = Annotated[
    str, Argument(metavar="DIR", help="The archive's folder, where all of Spark can reach it.")
]
_Archived = Annotated[
    list[str] | None,
    Argument(
        metavar="TOPIC", help="Names of topics, or patterns in quotes (default: all).", show_default=False
    ),
]
_Follow = Annotated[
    float | None, span_option("--follow", "Go on for ever, looking so often for new records.", least=0.1)
]
_Trim = Annotated[bool, Option("--trim", help="Trim the topics up to what is archived and durable.")]
_FailOnLoss = Annotated[
    bool,
    Option("--fail-on-loss", help="End if records are gone before they could be archived, else count them."),
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

app = group()


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

    def prepare() -> Job:
        from quoth.spark.archive.archiver import Policy
        from quoth.spark.jobs import archive

        return archive.job(
            directory,
            topics,
            url=session.broker.url,
            timeout=session.timeout_s,
            policy=Policy(fail_on_loss, trim, file_bytes, keep_replaced),
            follow=follow,
            tell=report,
        )

    return run(session, spark, "archive", prepare)


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

    def prepare() -> Job:
        from quoth.spark.jobs import compact

        return compact.job(directory, topics or (), target_bytes=target_bytes, keep_replaced=keep_replaced)

    return run(session, spark, "compact", prepare)


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

    def prepare() -> Job:
        from quoth.spark.jobs import verify

        return verify.job(directory, topics or ())

    return run(session, spark, "verify", prepare)
