"""Parses the options of `format("quoth")`, which have the names and meanings of Spark's Kafka source.

An unknown option is an error, because ignoring it would read other records than the user meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple, TypeVar

from quoth import Client
from quoth.spark.connections import TIMEOUT_S, check_key_path, client
from quoth.timestamps import now
from quothwire import pointer as pointers
from quothwire.errors import QuothError, error
from quothwire.protocol.group_settings import check_group
from quothwire.text.quantity import is_span, parse_span
from quothwire.topic import check_topic

EARLIEST, LATEST = -2, -1
"""Kafka's numbers for these offsets."""
RECORDS_MAX, BYTES_MAX = 5_000_000, 2**30
"""The default limits of a micro-batch. Spark would repeat one that is too large for ever, unchanged."""
TRIGGER_DELAY = "15m"

STREAM_ONLY = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "until")
NAMES = (
    "url", "quoth.bootstrap.servers", "key", "subscribe", "subscribePattern", "since", "startingOffsets",
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", *BATCH_ONLY,
    *STREAM_ONLY, "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders", "lossTopic",
    "timeout", "group",
)  # fmt: skip
_SYNONYMS = {
    "path": "subscribe",
    "topic": "subscribe",
    "assign": "subscribe",
    "kafka.bootstrap.servers": "url",
    "kafka.group.id": "group",
    "groupidprefix": "group",
    "kafka.ssl.keystore.location": "key",
    "kafka.sasl.jaas.config": "key",
    "fetchoffset.numretries": "timeout",
    "fetchoffset.retryintervalms": "timeout",
    "kafkaconsumer.polltimeoutms": "timeout",
}
"""The options of other sources, and ours."""
_OF_TABLE = "option."
"""Spark's prefix for the options of CREATE TABLE. When the table is used, they are missing."""
_VIEW = "CREATE TEMPORARY VIEW ... USING quoth OPTIONS (...) can be read and written in SQL"
_STARTS = ("since", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("until", "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""The first one that is given applies, as with Kafka."""
COUNTS = range(1, 10**18)
_MILLISECONDS = "milliseconds since 1970, like 1767323045000"
AHEAD_US = 60_000_000
"""The largest accepted difference between the clocks of two machines."""

Given = TypeVar("Given")
Checked = TypeVar("Checked")


class OffsetBound(NamedTuple):
    """The beginning or the end of a reading: `EARLIEST`, `LATEST` or a pointer.

    is_time: the pointer is a time, which need not be that of a record. strict: it is an error if no record
    lies behind it.
    """

    pointer: int
    is_time: bool = False
    strict: bool = False


class OffsetBounds(NamedTuple):
    """The bound of all topics, or of each topic in `each`, which then names all of them."""

    everywhere: OffsetBound
    each: Mapping[str, OffsetBound] = {}

    def of(self, topic: str) -> OffsetBound:
        """The bound of a topic."""
        return self.each.get(topic, self.everywhere)

    def check_names(self, topics: Iterable[str], what: str) -> None:
        """Raise ``bad_request`` if single topics have bounds, but others than the topics that are read."""
        if not self.each:
            return
        missing, unknown = sorted(set(topics) - set(self.each)), sorted(set(self.each) - set(topics))
        if missing:
            raise error("bad_request", f"{what}: nothing is said of {', '.join(missing)}", "name every topic")
        if unknown:
            text = f"{what}: {', '.join(unknown)} is not read"
            raise error("bad_request", text, "name topics that are read")


@dataclass(frozen=True)
class Options:
    """The options of a reading.

    topics: names; empty with a pattern. records_max, bytes_max: limits of a micro-batch. records_min: a
    micro-batch waits for so many records, at most `delay` seconds. partitions_min: about the number of tasks;
    None for a task for each processor, or more for large ranges. partition_records: about the largest number
    of records of a task. loss_topic: where losses are published. timeout: seconds that a broker may be
    unreachable. group: a group or a named cursor, at which the reading begins where there is one; to it a
    stream commits. key: the path of the key file, None for a broker without keys.
    """

    url: str
    topics: tuple[str, ...]
    pattern: str | None
    starting: OffsetBounds
    ending: OffsetBounds
    records_max: int
    bytes_max: int
    records_min: int
    delay: float
    partitions_min: int | None
    partition_records: int | None
    fail_on_data_loss: bool
    loss_topic: str | None
    timeout: float
    group: str | None
    key: str | None

    def means(self, name: str) -> bool:
        """True if the topic of this name is read."""
        return name in self.topics if self.pattern is None else bool(re.fullmatch(self.pattern, name))

    def connect(self) -> Client:
        """The client of this process for the broker."""
        return client(self.url, self.timeout, self.key)


def parse(options: Mapping[str, str], *, stream: bool) -> Options:
    """Parse the options of a reading. The case of names does not matter.

    Raises `RequestError` ``bad_request``, ``bad_topic`` or ``bad_pointer``, which names the option.
    """
    given = GivenOptions(options)
    given.check_names(NAMES)
    if stream:
        given.refuse(BATCH_ONLY, "a stream has no end")
    else:
        given.refuse(STREAM_ONLY, "a batch query reads all up to its end; endingOffsets or until say where")
    topics, pattern = _topics(given)
    starting, ending = _starting(given, stream), _ending(given)
    if pattern is None:
        starting.check_names(topics, "starting offsets")
        ending.check_names(topics, "ending offsets")
    return Options(
        url=given.url(),
        topics=topics,
        pattern=pattern,
        starting=starting,
        ending=ending,
        records_max=given.number("maxOffsetsPerTrigger", RECORDS_MAX),
        bytes_max=given.number("maxBytesPerTrigger", BYTES_MAX),
        records_min=given.number("minOffsetsPerTrigger", 1),
        delay=given.seconds("maxTriggerDelay", TRIGGER_DELAY),
        partitions_min=given.number("minPartitions", 0) or None,
        partition_records=given.number("maxRecordsPerPartition", 0) or None,
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        loss_topic=given.topic("lossTopic"),
        timeout=given.timeout(),
        group=given.group("group"),
        key=given.key(),
    )


class GivenOptions:
    """The texts of options by their names, whose case does not matter. Its methods raise ``bad_request``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._texts = {name.lower(): text.strip() for name, text in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse options with other names."""
        known = {name.lower(): name for name in names}
        for name in sorted(self._texts.keys() - known.keys()):
            if name.startswith(_OF_TABLE):
                raise error(
                    "bad_request", "no table of a catalog can be a topic: its options are lost", _VIEW
                )
            synonym = _SYNONYMS.get(name)
            close = [synonym] if synonym in known else get_close_matches(name, known, 1)
            hint = f"did you mean {known[close[0]]}?" if close else f"there are {', '.join(known.values())}"
            raise error("bad_request", f"there is no option {name!r}", hint)

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Refuse options that have no meaning here."""
        for name in names:
            if name in self:
                raise error("bad_request", f"option {name}: {why}", "leave it out")

    def text(self, name: str) -> str:
        """The text of an option."""
        return self._texts[name.lower()]

    def wrong(self, name: str, hint: str) -> QuothError:
        """The error for the text of an option."""
        return error("bad_request", f"option {name}: {self.text(name)!r}", hint)

    def number(
        self, name: str, default: int, allowed: range = COUNTS, hint: str = "a whole number from 1 on"
    ) -> int:
        """Parse a whole number."""
        if name not in self:
            return default
        text = self.text(name)
        if not re.fullmatch("[0-9]{1,19}", text) or int(text) not in allowed:
            raise self.wrong(name, hint)
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        """Parse true or false."""
        if name not in self:
            return default
        found = {"true": True, "false": False}.get(self.text(name).lower())
        if found is None:
            raise self.wrong(name, "true or false")
        return found

    def seconds(self, name: str, default: str) -> float:
        """Parse a span of time with units: a bare number would be milliseconds in Spark, seconds in Quoth."""
        text = self.text(name) if name in self else default
        if not is_span(text):
            raise self.wrong(name, "a span of time like 30s, 15m or 1h30m")
        return parse_span(text)

    def timeout(self) -> float:
        """Parse the seconds that a broker may be unreachable."""
        return self.seconds("timeout", f"{TIMEOUT_S:g}s")

    def url(self) -> str:
        """Parse the URL of the broker; host:port, as for Kafka, is tcp."""
        names = [name for name in ("url", "quoth.bootstrap.servers") if name in self]
        if len(names) != 1:
            raise error("bad_request", "where is the broker?", "set one of url and quoth.bootstrap.servers")
        text = self.text(names[0])
        if not text or "," in text:
            raise self.wrong(names[0], "one broker, like tcp://127.0.0.1:5555")
        return text if "://" in text else f"tcp://{text}"

    def key(self) -> str | None:
        """Parse the path of the key file, the same on the driver and all executors; None without one."""
        if "key" not in self:
            return None
        _of_option("key", check_key_path, self.text("key"))
        return self.text("key")

    def topic(self, name: str) -> str | None:
        """Parse a topic's name; None if the option is not set. Raises also ``bad_topic``."""
        return _of_option(name, check_topic, self.text(name)) if name in self else None

    def group(self, name: str) -> str | None:
        """Parse a group's name; None if the option is not set. Raises also ``bad_group``."""
        return _of_option(name, check_group, self.text(name)) if name in self else None

    def each(self, name: str) -> dict[str, int]:
        """Parse a number for each topic from JSON: {"topic": 5}, or Kafka's {"topic": {"0": 5}}."""
        hint = 'JSON with a number for each topic, like {"orders": 1767323045000001}'
        try:
            found = json.loads(self.text(name))
        except ValueError:
            found = None
        if not isinstance(found, dict) or not found:
            raise self.wrong(name, hint)
        each = {}
        for topic, number in found.items():
            if isinstance(number, dict) and list(number) == ["0"]:
                number = number["0"]
            if not isinstance(number, int) or isinstance(number, bool):
                raise self.wrong(name, f"{hint}; topic {topic!r} has one partition, 0")
            each[_of_option(name, check_topic, topic)] = number
        return each


def _of_option(name: str, check: Callable[[Given], Checked], given: Given) -> Checked:
    """Check a value; an error names the option."""
    try:
        return check(given)
    except QuothError as problem:
        raise error(problem.code, f"option {name}: {problem.text}", problem.hint) from None


def _topics(given: GivenOptions) -> tuple[tuple[str, ...], str | None]:
    if ("subscribe" in given) == ("subscribePattern" in given):
        raise error("bad_request", "which topics?", "set one of subscribe and subscribePattern")
    if "subscribe" in given:
        names = dict.fromkeys(name.strip() for name in given.text("subscribe").split(","))
        return tuple(_of_option("subscribe", check_topic, name) for name in names), None
    pattern = given.text("subscribePattern")
    try:
        re.compile(pattern)
    except re.error as problem:
        raise given.wrong("subscribePattern", f"not a regular expression: {problem}") from None
    return (), pattern


def _starting(given: GivenOptions, stream: bool) -> OffsetBounds:
    name = _first_of(given, _STARTS, "begin")
    strict = True
    if "startingOffsetsByTimestampStrategy" in given:
        strategy = given.text("startingOffsetsByTimestampStrategy").lower()
        if strategy not in ("error", "latest"):
            raise given.wrong("startingOffsetsByTimestampStrategy", "error or latest")
        strict = strategy == "error"
    if name is None:
        return OffsetBounds(OffsetBound(LATEST if stream else EARLIEST))
    bounds = _bounds(given, name, strict, None if stream else LATEST)
    for bound in (bounds.everywhere, *bounds.each.values()):
        if bound.is_time and bound.pointer > now() + AHEAD_US:
            text = f"option {name}: {pointers.to_text(bound.pointer)} lies in the future"
            raise error("bad_pointer", text, "like -15m or now")
    return bounds


def _ending(given: GivenOptions) -> OffsetBounds:
    name = _first_of(given, _ENDS, "end")
    return _bounds(given, name, False, EARLIEST) if name else OffsetBounds(OffsetBound(LATEST))


def _first_of(given: GivenOptions, names: tuple[str, ...], where: str) -> str | None:
    """The option that applies: the first one that is given. The first name excludes the others."""
    found = [name for name in names if name in given]
    if names[0] in found and len(found) > 1:
        text = f"options {' and '.join(found)} both say where to {where}"
        raise error("bad_request", text, "set one of them")
    return found[0] if found else None


def _bounds(given: GivenOptions, name: str, strict: bool, refused: int | None) -> OffsetBounds:
    """The bounds that an option of `_STARTS` or `_ENDS` gives. refused: the offset that it cannot give."""

    def at(milliseconds: int) -> OffsetBound:
        if milliseconds < 0:
            raise given.wrong(name, _MILLISECONDS)
        pointer = _of_option(name, pointers.check_pointer, milliseconds * 1_000)
        return OffsetBound(pointer, is_time=True, strict=strict)

    match name:
        case "since" | "until":
            pointer = _of_option(name, lambda text: pointers.parse(text, now()), given.text(name))
            return OffsetBounds(OffsetBound(pointer, is_time=True))
        case "startingTimestamp" | "endingTimestamp":
            return OffsetBounds(at(given.number(name, 0, range(10**18), _MILLISECONDS)))
        case "startingOffsetsByTimestamp" | "endingOffsetsByTimestamp":
            times = given.each(name).items()
            return OffsetBounds(OffsetBound(LATEST), {topic: at(one) for topic, one in times})
    words = {"earliest": EARLIEST, "latest": LATEST}
    word = words.get(given.text(name).lower())
    each = given.each(name) if word is None else {}
    if refused is not None and refused in (word, *each.values()):
        raise given.wrong(name, "a batch query does not begin at the latest or end at the earliest offset")
    for topic, number in each.items():
        if number not in words.values():
            _of_option(f"{name}, topic {topic!r}", pointers.check_pointer, number)
    return OffsetBounds(OffsetBound(word or LATEST), {topic: OffsetBound(one) for topic, one in each.items()})
