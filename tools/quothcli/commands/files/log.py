"""`quoth log`: the commands for the files of a log, with or without a broker."""

from __future__ import annotations

from quothcli.cli.command import LazyCommand, group

COMMANDS = {
    name: LazyCommand(f"quothcli.commands.files.{module}", sentence)
    for name, module, sentence in (
        ("ls", "segments", "List the segments of a log, verified."),
        ("dump", "segments", "Print the records of a log."),
        ("verify", "verify", "Read every byte of a log and verify every checksum."),
        ("repair", "verify", "Rewrite damaged segments without what is damaged."),
    )
}
"""Each command with its module."""

app = group("Look at a log's files, with or without a broker; repair them.", COMMANDS)
