"""`quoth demo`: publishes every line of a file through real sockets, reads all back, compares.

The broker runs in this process on a temporary directory that is removed at the end. Both sides keep a
count and a running hash, so a file may be larger than the memory.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
import time
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from xxhash import xxh3_128

import quoth
from quothcli.cli.command import argument, command, group
from quothcli.cli.exit_status import Refused, say, terminable
from quothcli.cli.options import WithoutBroker
from quothcli.printing.output import Format, Printer
from quothcli.printing.progress import progress
from quothcli.printing.text import bytes_text, records_text, shown, time_or_dash
from quothcli.records.record_parser import Stream, portions
from quothwire.text.paths import given_path

if TYPE_CHECKING:
    from quoth import Client


TOPIC = "demo"
DELIVERY_TIMEOUT_S = 60.0
_PREVIEW_LENGTH = 60
_LENGTH = struct.Struct("<Q").pack
_NEXT = """
next
  quoth serve --dir quoth-data             a broker that stays
  quoth pub greetings 'hello, world'       publish a record, get its pointer
  quoth tail greetings --since -1h         read on as records come
  quoth read greetings --format json       what is there now
  quoth log ls quoth-data                  the files, with or without a broker"""


class LineSource(NamedTuple):
    """The source of the lines. size: None if unknown. typed: a person types them."""

    name: str
    stream: Stream
    size: int | None
    typed: bool = False


class Side:
    """The lines that were published, or read back: their count, bytes, hash, and the time since it began."""

    def __init__(self) -> None:
        self.count = self.size = 0
        self.digest = xxh3_128()
        self.began = time.perf_counter()
        self.seconds = 0.0

    def take(self, lines: Sequence[bytes]) -> int:
        """Count and hash lines; returns their bytes. The hash does not depend on the portions."""
        lengths = list(map(len, lines))
        self.digest.update(b"".join(chain.from_iterable(zip(map(_LENGTH, lengths), lines, strict=True))))
        size = sum(lengths)
        self.count += len(lines)
        self.size += size
        return size

    def end(self) -> None:
        """Take the time."""
        self.seconds = time.perf_counter() - self.began

    def content(self) -> dict[str, Any]:
        """Return the object of this side."""
        seconds = max(self.seconds, 1e-9)
        return {
            "records": self.count,
            "bytes": self.size,
            "seconds": self.seconds,
            "records_per_second": self.count / seconds,
            "megabytes_per_second": self.size / seconds / 1e6,
            "xxh3_128": self.digest.hexdigest(),
        }


class DemoResult(NamedTuple):
    """The result of a demonstration. samples: pointers and values of a few records."""

    source: str
    durability: str
    published: Side
    read: Side
    samples: list[tuple[int, bytes]]

    @property
    def equal(self) -> bool:
        """True if the same lines came back."""
        first, second = ((side.count, side.digest.digest()) for side in (self.published, self.read))
        return first == second


app = group()


@command(app, "demo", "quoth demo", "quoth demo /var/log/syslog", "seq 1000000 | quoth demo -")
def demo(
    session: WithoutBroker,
    file: Annotated[
        str | None,
        argument("FILE", "The lines to publish; - is stdin. Default: a long text that comes with Python."),
    ] = None,
) -> None:
    """Publish the lines of a file, read them back, compare.

    It needs no broker: it runs one of its own on a temporary directory. Exit status 0 says that every line
    came back as it was.
    """
    with terminable(), _source(file) as source:
        result = run(source)
    _print(session.printer, result)
    if not result.equal:
        text = "what was read is not what was published"
        raise Refused("damaged", text, "please report this, with the file")


def run(source: LineSource) -> DemoResult:
    """Publish and read back on a broker in this process."""
    from quothd import Broker
    from quothd.daemon import SWITCH_INTERVAL_S

    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with (
        tempfile.TemporaryDirectory(prefix="quoth-demo-") as directory,
        Broker(directory, host="127.0.0.1", port=0) as broker,
        quoth.connect(broker.url) as client,
    ):
        published = _publish(client, source)
        read, samples = _read(client, published)
        return DemoResult(source.name, broker.config.durability, published, read, samples)


def _publish(client: Client, source: LineSource) -> Side:
    side = Side()
    with (
        progress("publishing", source.size, quiet=source.typed) as advance,
        client.producer(TOPIC, timeout=DELIVERY_TIMEOUT_S) as producer,
    ):
        for lines in portions(source.stream):
            size = side.take(lines)
            for line in lines:
                producer.send(line)
            advance(len(lines), size + len(lines))
    side.end()
    return side


def _read(client: Client, published: Side) -> tuple[Side, list[tuple[int, bytes]]]:
    """Read the topic; keep the first record, one in the middle and the last one."""
    side = Side()
    samples: list[tuple[int, bytes]] = []
    wanted = sorted({0, published.count // 2, published.count - 1})
    with progress("reading back", published.size or None) as advance:
        for batch in client.batches(TOPIC, after=0) if published.count else ():
            rows = [place - side.count for place in wanted]
            samples += [(batch.first + row, batch.values[row]) for row in rows if 0 <= row < len(batch)]
            advance(len(batch), side.take(batch.values))
    side.end()
    return side, samples


@contextmanager
def _source(file: str | None) -> Iterator[LineSource]:
    """Open the lines to publish. Raises OSError, or ``bad_setting`` for an empty path."""
    if file == "-":
        typed = sys.stdin.isatty()
        if typed:
            say("quoth: every line becomes a record, Ctrl-D ends")
        yield LineSource("stdin", sys.stdin.buffer, None, typed)  # type: ignore[arg-type]  # it is buffered
        return
    path = given_path(typing.__file__ if file is None else file, "FILE")
    with open(path, "rb") as stream:
        yield LineSource(str(path), stream, os.fstat(stream.fileno()).st_size or None)


def _print(printer: Printer, result: DemoResult) -> None:
    sides = {"published": result.published.content(), "read": result.read.content()}
    if printer.form is Format.JSON:
        pointers = [{"pointer": pointer, "time": time_or_dash(pointer)} for pointer, _ in result.samples]
        about = {"source": result.source, "equal": result.equal, "durability": result.durability}
        printer.object({**about, "pointers": pointers, **sides})
        return
    if not result.published.count:
        printer.line(f"{result.source} is empty: nothing was published, nothing came back")
        return
    printer.line(f"lines of    {result.source}: {bytes_text(result.published.size)}")
    for name, side in zip(("published", "read back"), sides.values(), strict=True):
        rate = f"{side['records_per_second']:,.0f} records/s, {side['megabytes_per_second']:,.1f} MB/s"
        printer.line(f"{name:<12}{records_text(side['records'])} in {side['seconds']:.2f} s: {rate}")
    printer.line(f"durability  {result.durability}: acknowledged records survive the death of the broker")
    hashes = dict.fromkeys(f"xxh3-128 {side['xxh3_128']}" for side in sides.values())
    printer.line(f"equal       {'yes' if result.equal else 'NO'}, {' and '.join(hashes)}")
    printer.line("\npointers, each of which is a time")
    for pointer, value in result.samples:
        preview = shown(value[:_PREVIEW_LENGTH])[:_PREVIEW_LENGTH]
        printer.line(f"  {pointer}  {time_or_dash(pointer)}  {preview}")
    printer.line(_NEXT)
