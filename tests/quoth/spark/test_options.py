"""Options of the source, and the errors for invalid ones."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from quoth import QuothError
from quoth.spark.options import EARLIEST, LATEST, OffsetBound, parse
from quothwire import pointer

HERE = {"url": "tcp://127.0.0.1:5555", "subscribe": "a,b"}


def test_option_names_are_case_insensitive_and_values_may_have_blanks() -> None:
    options = parse({"URL": " tcp://h:1 ", "SUBSCRIBE": "a, b ,a", "MinPartitions": " 7 "}, stream=False)
    assert (options.url, options.topics, options.partitions_min) == ("tcp://h:1", ("a", "b"), 7)
    assert parse({"quoth.bootstrap.servers": "h:1", "subscribe": "a"}, stream=True).url == "tcp://h:1"


def test_a_stream_begins_at_the_latest_and_a_batch_query_at_the_earliest_offset() -> None:
    assert parse(HERE, stream=True).starting.everywhere == OffsetBound(LATEST)
    assert parse(HERE, stream=False).starting.everywhere == OffsetBound(EARLIEST)


def test_a_pattern_means_whole_names() -> None:
    options = parse({"url": "h:1", "subscribePattern": "orders-.*|x"}, stream=True)
    assert list(filter(options.means, ("orders-1", "my-orders-1", "x", "xx"))) == ["orders-1", "x"]


def test_times_count_before_offsets_as_with_kafka() -> None:
    times = {"startingTimestamp": "1000", "startingOffsetsByTimestamp": '{"a": 2, "b": 3}'}
    options = parse({**HERE, **times, "startingOffsets": "latest"}, stream=True)
    assert options.starting.everywhere == OffsetBound(1_000_000, is_time=True, strict=True)


def test_a_time_has_the_forms_of_all_other_commands() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    options = parse({**HERE, "since": "2026-01-02", "until": "2026-01-02T00:00:00.000005Z"}, stream=False)
    assert options.starting.everywhere == OffsetBound(pointer.from_datetime(at), is_time=True)
    assert options.ending.everywhere == OffsetBound(pointer.from_datetime(at) + 5, is_time=True)


def test_key_is_an_absolute_path_which_all_processes_have() -> None:
    assert parse({**HERE, "KEY": " /etc/quoth/etl.key "}, stream=True).key == "/etc/quoth/etl.key"
    assert parse(HERE, stream=False).key is None
    for given in ("etl.key", ""):
        with pytest.raises(QuothError, match=r"option key: the key file .* on the driver and all executors"):
            parse({**HERE, "key": given}, stream=False)
    with pytest.raises(QuothError, match=r"did you mean key\?"):
        parse({**HERE, "kafka.ssl.keystore.location": "/etc/keystore"}, stream=False)


def test_options_travel_to_other_processes() -> None:
    options = parse({**HERE, "startingOffsets": '{"a": 5, "b": {"0": -2}}'}, stream=True)
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.starting.each == {"a": OffsetBound(5), "b": OffsetBound(EARLIEST)}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscrib": "a"}, "bad_request: there is no option 'subscrib' (did you mean subscribe?)"),
        ({"kafka.bootstrap.servers": "h:1"}, "'kafka.bootstrap.servers' (did you mean url?)"),
        ({"path": "a"}, "'path' (did you mean subscribe?)"),
        ({"kafka.group.id": "a"}, "'kafka.group.id' (did you mean group?)"),
        ({"group": "a/b"}, "bad_group: option group: "),
        ({"wholly": "other"}, "there are url, "),
        ({"quoth.bootstrap.servers": "h:1"}, "where is the broker? (set one of url and"),
        ({"url": "a:1,b:2"}, "option url: 'a:1,b:2' (one broker, like"),
        ({"subscribePattern": ".*"}, "which topics? (set one of subscribe and subscribePattern)"),
        ({"subscribe": "a,/"}, "bad_topic: option subscribe: '/'"),
        ({"startingOffsets": '{"a/b": 5}'}, "bad_topic: option startingOffsets: 'a/b'"),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger: '0' (a whole number from 1 on)"),
        ({"minPartitions": "9" * 40}, "a whole number from 1 on"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss: 'no' (true or false)"),
        ({"timeout": "60"}, "option timeout: '60' (a span of time like 30s"),
        ({"lossTopic": "."}, "bad_topic: option lossTopic: '.'"),
        (
            {"startingOffsets": "newest"},
            "option startingOffsets: 'newest' (JSON with a number for each topic",
        ),
        ({"startingOffsets": '{"a": 1}'}, "starting offsets: nothing is said of b (name every topic)"),
        ({"startingOffsets": '{"a": 1, "b": 1, "c": 1}'}, "starting offsets: c is not read"),
        ({"startingOffsets": '{"a": {"1": 5}, "b": 1}'}, "topic 'a' has one partition, 0"),
        ({"startingOffsets": '{"a": -3, "b": 1}'}, "bad_pointer: option startingOffsets, topic 'a': -3"),
        ({"startingTimestamp": "2026-01-01"}, "milliseconds since 1970"),
        ({"startingTimestamp": "99999999999999"}, "bad_pointer: option startingTimestamp"),
        ({"startingOffsetsByTimestamp": '{"a": -2, "b": 1}'}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "newest"}, "(error or latest)"),
        ({"since": "yesterday"}, "bad_pointer: option since: 'yesterday' is neither a pointer nor a time"),
        (
            {"since": "2200-01-01"},
            "bad_pointer: option since: 2200-01-01T00:00:00.000000Z lies in the future",
        ),
        ({"since": "-1h", "startingOffsets": "earliest"}, "both say where to begin (set one of them)"),
    ],
)
def test_the_error_for_a_wrong_option_names_it_and_the_right_values(
    given: dict[str, str], expected: str
) -> None:
    for stream in (True, False):
        if not stream and any(name.startswith(("max", "min")) and "Trigger" in name for name in given):
            expected = "a batch query reads all up to its end"
        with pytest.raises(QuothError) as caught:
            parse({**HERE, **given}, stream=stream)
        assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("given", "stream", "expected"),
    [
        ({"endingOffsets": "latest"}, True, "option endingOffsets: a stream has no end (leave it out)"),
        ({"until": "now"}, True, "option until: a stream has no end"),
        ({"maxTriggerDelay": "5s"}, False, "endingOffsets or until say where"),
        ({"startingOffsets": "latest"}, False, "a batch query does not begin at the latest"),
        ({"startingOffsets": '{"a": -1, "b": -2}'}, False, "a batch query does not begin at the latest"),
        ({"endingOffsets": "earliest"}, False, "or end at the earliest"),
        ({"until": "now", "endingTimestamp": "5"}, False, "both say where to end"),
    ],
)
def test_options_without_a_meaning_are_refused(given: dict[str, str], stream: bool, expected: str) -> None:
    with pytest.raises(QuothError) as caught:
        parse({**HERE, **given}, stream=stream)
    assert expected in str(caught.value)
