"""The plan of a large transaction: which files become segments, while they do.

    VERSION
    NAME FLOOR          a file of staged batches and the floor of the segment that it becomes, a line each
    SUCCESSOR           the floor of the segment behind them, with which the log goes on
    CHECKSUM            xxh3-64 of what stands above, in hex

Once the successor is there, so is the transaction, whatever the names of its files. As long as there is a
plan, a reader without a lock sees the log as it was before.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest

from quothlog import file_format
from quothlog.storage.filesystem import FileSystem, durable_names, write_durably
from quothwire.errors import error


class CommitPlan(NamedTuple):
    """Names of files with the floors of the segments that they become, and the floor behind them all."""

    names: list[tuple[str, int]]
    successor: int

    def write(self, filesystem: FileSystem, directory: Path) -> None:
        """Write it down, durably. Raises OSError."""
        rows = "".join(f"{name} {floor}\n" for name, floor in self.names)
        lines = f"{file_format.VERSION}\n{rows}{self.successor}\n"
        text = f"{lines}{xxh3_64_hexdigest(lines.encode())}\n"
        write_durably(filesystem, directory / file_format.PLAN_NAME, [text.encode()])

    def carry_out(self, filesystem: FileSystem, directory: Path, files: dict[str, int]) -> None:
        """Give the files that are there the names of segments, durably. files: names and sizes, kept true."""
        with durable_names(filesystem, directory):
            for name, floor in self.names:
                if name in files:
                    segment = file_format.segment_name(floor)
                    filesystem.rename(directory / name, directory / segment)
                    files[segment] = files.pop(name)


def read_plan(filesystem: FileSystem, directory: Path) -> CommitPlan | None:
    """The plan in a directory, None if there is none.

    Raises `Damaged`, ``unsupported_version`` for one of another version, or OSError.
    """
    try:
        file = filesystem.open(directory / file_format.PLAN_NAME)
    except FileNotFoundError:
        return None
    text = file.read(file.size(), 0).decode("ascii", "replace")
    file.close()
    *lines, check = text.splitlines(keepends=True) or [""]
    if len(lines) < 3 or check != f"{xxh3_64_hexdigest(''.join(lines).encode())}\n":
        hint = "move it away: the transaction whose files it names is lost then, and nothing else"
        raise error("damaged", f"{file_format.PLAN_NAME} in {directory} does not check", hint)
    version, *rows, successor = lines
    if version.strip() != f"{file_format.VERSION}":
        raise file_format.of_another_version("a plan", version.strip())
    pairs = (row.split() for row in rows)
    return CommitPlan([(name, int(floor)) for name, floor in pairs], int(successor))


def finish_plan(filesystem: FileSystem, directory: Path, files: dict[str, int]) -> None:
    """Finish the publication that a crash broke off, if it was decided, and remove what is left of it.

    files: names and sizes, kept true.
    """
    plan = read_plan(filesystem, directory) if file_format.PLAN_NAME in files else None
    if plan is not None:
        if file_format.segment_name(plan.successor) in files:
            plan.carry_out(filesystem, directory, files)
        with durable_names(filesystem, directory):  # it is not to come back when names are used again
            filesystem.remove(directory / file_format.PLAN_NAME)
        files.pop(file_format.PLAN_NAME, None)
    for name in [name for name in files if name.endswith(file_format.MERGED_SUFFIX)]:
        filesystem.remove(directory / name)
        del files[name]
