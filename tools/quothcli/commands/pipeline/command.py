"""`quoth pipeline`: the jobs that run on Spark."""

from __future__ import annotations

from quothcli.cli.command import LazyCommand, group

COMMANDS = {
    name: LazyCommand(f"quothcli.commands.pipeline.{module}", sentence)
    for name, module, sentence in (
        ("audit", "jobs", "Verify every checksum of every segment, with or without a broker."),
        ("archive", "jobs", "Keep topics as Parquet files, each record once."),
        ("verify", "jobs", "Compare every file of an archive with its manifest."),
        ("compact", "jobs", "Merge the small files of an archive into large ones, day by day."),
        ("replay", "replay", "Put archived records, or any Parquet files, into topics, once."),
        ("stats", "jobs", "Tell what topics hold, window by window."),
    )
}
"""Each job with its module."""

app = group("Jobs on Spark: look after topics too large for one process.", COMMANDS)
