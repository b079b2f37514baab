"""A channel on the disk, without a broker: one process puts lines, another one gets them, after kills, too.

    python channel.py put jobs < lines
    python channel.py get jobs

A line is on the disk a tenth of a second after it was read. After a crash the last lines may be repeated.
"""

import os
import sys

import quoth
from quothlog import Reader, Writer


def put(directory: str) -> None:
    """Put every line of stdin."""
    with Writer(directory, flush_records=100, flush_seconds=0.1) as writer:
        for line in sys.stdin.buffer:
            writer.write(line.rstrip(b"\n"))


def get(directory: str) -> None:
    """Print every line that was not printed before, forever."""
    os.makedirs(directory, exist_ok=True)
    with quoth.Cursor(f"{directory}.cursor") as cursor, Reader(directory, cursor.after("got") or 0) as reader:
        while records := reader.read(timeout=None):
            sys.stdout.buffer.writelines(record.value + b"\n" for record in records)
            sys.stdout.flush()
            cursor.advance("got", records[-1].pointer)
            cursor.save()


if __name__ == "__main__":
    {"put": put, "get": get}[sys.argv[1]](sys.argv[2])
