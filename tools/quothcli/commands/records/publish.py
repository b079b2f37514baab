"""`quoth pub`: publishes values, whole files, or the lines of stdin."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import BadParameter

from quothcli.cli.command import argument, command, group, option
from quothcli.cli.exit_status import say
from quothcli.cli.options import Topic, WithBrokerOfRecords
from quothcli.printing.output import Printer
from quothcli.printing.progress import Advance, progress
from quothcli.printing.text import records_text
from quothcli.records.record_parser import (
    JSON_LINE_BYTES_MAX,
    LINE_BYTES_MAX,
    ParseLine,
    check_files,
    files,
    keyed,
    parsed,
    plain,
    portions,
)
from quothwire import pointer as pointers
from quothwire.text.record_json import Draft, json_object

if TYPE_CHECKING:
    from quoth import Ack, Client, Producer


DELIVERY_TIMEOUT_S = 120.0
"""Time that a record of stdin or of a file waits for a broker that is away, unless --timeout is given."""

WATCH_MS = 200
"""Milliseconds without a line after which the producer is asked whether it has failed."""

Durability = Literal["written", "synced"]


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, os.fsencode(value)


_Values = Annotated[
    list[str] | None, argument("VALUE", "The records' values; without any, every line of stdin is a record.")
]
_Files = Annotated[list[Path] | None, option("--file FILE", "A file that is one record; may be repeated.")]
_KeySeparator = Annotated[
    str | None, option("--key-separator -K TEXT", "The key is the part of a line or VALUE before it.")
]
_Headers = Annotated[
    list[Any] | None,
    option(
        "--header NAME=VALUE", "A header of records that do not bring it; may be repeated.", parser=_header
    ),
]
_Level = Annotated[
    Durability | None,
    option(
        "--durability LEVEL",
        "written (survives the death of the broker) or synced (survives a power cut); "
        "default: the topic's own.",
    ),
]


Filled = Callable[[Iterable[Draft]], Iterator[Draft]]
"""Gives records that have none themselves a key and headers."""


app = group()


@command(
    app,
    "pub",
    "quoth pub greetings 'hello, world'",
    "quoth pub orders '{\"item\": 7}' --key customer-7 --header source=shop",
    "tail -F /var/log/syslog | quoth pub syslog",
    "quoth pub photos --file one.jpg --file two.jpg --file-names",
    "find /srv -print0 | quoth pub paths --null",
    "quoth read orders --format json | quoth pub copy --json",
)
def publish(
    session: WithBrokerOfRecords,
    topic: Topic,
    values: _Values = None,
    file: _Files = None,
    file_names: Annotated[
        bool, option("--file-names", "Give the record of a file the header filename.")
    ] = False,
    null: Annotated[bool, option("--null -0", "Records of stdin end with NUL, not newline.")] = False,
    json: Annotated[
        bool, option("--json", "Lines are records as `quoth read --format json` prints them.")
    ] = False,
    key_separator: _KeySeparator = None,
    key: Annotated[str | None, option("--key KEY", "The key of records that bring none.")] = None,
    header: _Headers = None,
    durability: _Level = None,
) -> None:
    """Publish every VALUE, every FILE, or every line of stdin.

    Prints the pointers that the records got. VALUEs are published as one batch, all or none. Files and lines
    go in batches, as they come, in order; lines without their newline. A batch that cannot be stored ends the
    command, and nothing behind it is stored. A topic that does not exist is made.
    """
    _check_source(values, file, file_names=file_names, lines=null or json)
    read = _reading(key_separator, json=json, files=bool(file))
    filled = _filled(None if key is None else os.fsencode(key), dict(header or ()))
    check_files(file or ())
    with session.connect() as client:
        if values:
            typed = filled(parsed(list(map(os.fsencode, values)), read))
            ack: Ack | None = _publish_values(client, topic, typed, durability)
        else:
            producer = client.producer(
                topic,
                durability=durability,
                timeout=session.timeout or DELIVERY_TIMEOUT_S,
                on_failure="stop",
            )
            if file:
                parts: Iterable[Iterable[Draft]] = ([one] for one in files(file, with_names=file_names))
            else:
                parts = _stdin(producer, read, json=json, null=null)
            ack = _publish_all(producer, "the files" if file else "stdin", parts, filled)
    if ack is None:
        say("quoth: there was nothing on stdin, so nothing was published")
    else:
        _print(session.printer, topic, ack)


def _publish_values(client: Client, topic: str, typed: Iterable[Draft], level: Durability | None) -> Ack:
    """Publish values as one batch."""
    values, keys, headers = zip(*typed, strict=True)
    has_keys = any(key is not None for key in keys)
    return client.publish(
        topic,
        values,
        key=keys if has_keys else None,
        headers=headers if any(headers) else None,
        durability=level,
    )


def _publish_all(
    producer: Producer, source: str, parts: Iterable[Iterable[Draft]], filled: Filled
) -> Ack | None:
    """Publish records as they come; None if there was none. An error reports how many were published."""
    from quoth import Ack

    try:
        with producer, progress("publishing", quiet=source == "stdin" and sys.stdin.isatty()) as advance:
            first = producer.future()
            for part in parts:
                _send(producer, filled(part), advance)
    except BaseException:
        say(f"quoth: published {records_text(producer.acknowledged)} of {source}")
        raise
    if not producer.acknowledged:
        return None
    ack = first.result(0)
    return Ack(ack.first, producer.last, producer.acknowledged, ack.durability, ack.duplicate)


def _send(producer: Producer, part: Iterable[Draft], advance: Advance) -> None:
    count = size = 0
    for value, key, headers in part:
        producer.send(value, key=key, headers=headers or None)
        count += 1
        size += len(value) + 1
    advance(count, size)


class _WatchedStdin:
    """Reads stdin, and raises a failure of the producer while no line comes."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._poll = select.poll()
        self._poll.register(sys.stdin.fileno(), select.POLLIN)

    def read1(self, size: int, /) -> bytes:
        """Return bytes as they come. Raises the error of the producer."""
        while not self._poll.poll(WATCH_MS):
            if self._producer.failure is not None:
                raise self._producer.failure
        return os.read(sys.stdin.fileno(), size)


def _stdin(producer: Producer, read: ParseLine, *, json: bool, null: bool) -> Iterator[Iterable[Draft]]:
    """Yield the records of stdin, as many at once as there are."""
    if sys.stdin.isatty():
        say("quoth: every line becomes a record, Ctrl-D ends")
    longest = JSON_LINE_BYTES_MAX if json else LINE_BYTES_MAX
    count = 0
    for lines in portions(_WatchedStdin(producer), b"\0" if null else b"\n", longest):
        yield parsed(lines, read, count)
        count += len(lines)


def _print(printer: Printer, topic: str, ack: Ack) -> None:
    last = f" to {ack.last}" if ack.last != ack.first else ""
    text = f"{ack.first}{last}\t{pointers.to_text(ack.first)}\t{records_text(ack.count)}, {ack.durability}"
    what = f"stored {records_text(ack.count)} of {topic!r} up to pointer {ack.last}"
    printer.done(what, text, {"topic": topic, **asdict(ack)}, ack.last)


def _check_source(
    values: list[str] | None, file: list[Path] | None, *, file_names: bool, lines: bool
) -> None:
    """Raise BadParameter for records from two places, and for an option without a meaning."""
    if values and file:
        raise BadParameter("give VALUEs or files, not both", param_hint="--file")
    if lines and (values or file):
        raise BadParameter("they are for records that come on stdin", param_hint="--null, --json")
    if file_names and not file:
        raise BadParameter("it needs --file", param_hint="--file-names")


def _reading(key_separator: str | None, *, json: bool, files: bool) -> ParseLine:
    """Return the function that parses a line. Raises BadParameter."""
    if key_separator is None:
        return json_object if json else plain
    if json or files:
        raise BadParameter("it is for lines and VALUEs", param_hint="--key-separator")
    if not key_separator:
        raise BadParameter("it must not be empty", param_hint="--key-separator")
    return keyed(os.fsencode(key_separator))


def _filled(default: bytes | None, more: Mapping[str, bytes]) -> Filled:
    def fill(drafts: Iterable[Draft]) -> Iterator[Draft]:
        for value, key, headers in drafts:
            yield value, default if key is None else key, {**more, **headers} if more else headers

    return fill
