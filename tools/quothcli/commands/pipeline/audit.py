"""`quoth pipeline audit`: verifies logs on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from quothcli.cli.command import command, group
from quothcli.cli.options import WithoutBroker
from quothcli.commands.pipeline.running import OnSpark, run

if TYPE_CHECKING:
    from quoth.spark.jobs.session import Job

_Directories = Annotated[
    list[Path],
    Argument(
        metavar="DIR",
        help="Embedded logs, topics' folders, data directories, where all of Spark can read them.",
    ),
]

app = group()


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
    only: Annotated[str | None, Option("--topic", metavar="TOPIC", help="Only this topic.")] = None,
    out: Annotated[
        str | None,
        Option("--out", metavar="DIR", help="Keep all segments and all findings there, as Parquet."),
    ] = None,
) -> int:
    """Verify every checksum of every segment, with or without a broker.

    A line for each finding: damage, or a note. Then one for each log. Damage makes the exit status 1, as in
    `quoth log verify`. Nothing is locked and nothing is changed.
    """

    def prepare() -> Job:
        from quoth.spark.jobs import audit

        return audit.job(directories, topic=only, out=out)

    return run(session, spark, "audit", prepare)
