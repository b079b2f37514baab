"""The codes of errors that no broker sends: those of the command `quoth` itself."""

from __future__ import annotations

from typing import NamedTuple

from quothcli.cli.exit_status import CommandStatus


class CommandCode(NamedTuple):
    """One row of the table. meaning: what happened, as a sentence. hint: what a person can do."""

    meaning: str
    hint: str
    status: CommandStatus = CommandStatus.FAILED


COMMAND_CODES: dict[str, CommandCode] = {
    "usage": CommandCode(
        "The command line was typed wrongly; nothing was done.",
        "the text says what is wrong; `quoth help COMMAND` has the options",
        CommandStatus.USAGE,
    ),
    "os_error": CommandCode(
        "A file, or the output of the command, cannot be read or written.",
        "the text names the file, and the reason that the system gives",
    ),
    "not_found": CommandCode(
        "A file or directory does not exist.", "is the path right?", CommandStatus.NOT_FOUND
    ),
    "exists": CommandCode(
        "A file that the command would write is there already; nothing was written.", "--force replaces it"
    ),
    "not_done": CommandCode("The question was answered with no; nothing was removed.", "answer y to do it"),
    "bad_line": CommandCode(
        "A line to publish is no record; the lines before it were published.",
        "the text names the line and says what is wrong with it",
        CommandStatus.USAGE,
    ),
    "bad_context": CommandCode(
        "A context cannot have this name or content.",
        "the text says what is wrong",
        CommandStatus.USAGE,
    ),
    "bad_contexts": CommandCode(
        "The file of the contexts cannot be understood.",
        "`quoth ctx ls` prints its path; repair or remove it",
    ),
    "unknown_context": CommandCode(
        "There is no context of this name.", "`quoth ctx ls` lists them", CommandStatus.NOT_FOUND
    ),
    "unknown_code": CommandCode(
        "No error has this code.", "`quoth errors` lists them", CommandStatus.NOT_FOUND
    ),
    "unknown_page": CommandCode(
        "`quoth help` has no such page or command.", "`quoth help` lists the pages", CommandStatus.NOT_FOUND
    ),
    "key_exists": CommandCode(
        "A file of this name is there, and was kept.",
        "take another name or --dir; --force replaces both files, and their key is gone then",
    ),
    "no_curve": CommandCode(
        "The installed libzmq makes no keys; nothing was made.",
        "install pyzmq from its wheels, which have it",
    ),
    "not_started": CommandCode(
        "The command of --exec cannot be started.", "try the command by itself; the text has the reason"
    ),
    "not_retried": CommandCode(
        "A dead letter cannot be published again.",
        "`quoth group dead show` prints it, `quoth pub` publishes it",
    ),
    "no_dead_letters": CommandCode(
        "The group writes no dead letters.", "`quoth group set --dead-letter TOPIC` lets it write them"
    ),
    "too_many_letters": CommandCode(
        "Older dead letters are neither retried nor dropped.",
        "begin with the oldest, or raise group_pending_max",
    ),
    "no_spark": CommandCode(
        "Something that this needs beside Quoth, as Spark, is not installed.",
        "pip install 'quoth[spark]'; it needs Java 17 or newer, too",
    ),
    "missing_extra": CommandCode(
        "Packages that this command needs are not installed.", "pip install 'quoth[web]'"
    ),
    "enabled": CommandCode(
        "The service is enabled, so it was not removed.",
        "`systemctl disable --now quothd`, with --user for your own",
    ),
    "packaged": CommandCode(
        "A package has installed the service; nothing was written.",
        "`systemctl enable --now quothd` starts it; or remove the package first",
    ),
    "needs_root": CommandCode(
        "A service of the system belongs to root.", "use sudo, or make a service of the user with --user"
    ),
}
"""By code. Codes of the protocol are in `quothwire.errors`; a command may have errors of those, too."""
