"""A tail that keeps its cursor: what was handed out is done when the next record is asked for."""

from __future__ import annotations

import gc
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kit.broker.peers import refused
from quoth import Client, Cursor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the cursor."""
    return tmp_path / "orders.cursor"


def take(client: Client, topic: str, cursor: Cursor | Path, number: int, **how: Any) -> list[bytes]:
    """The next values, all but the last of which are done."""
    tail: Any = client.tail(topic, cursor=cursor, **how)
    with closing(tail):
        return [message.value for message in islice(tail, number)]


def kept(path: Path, topic: str) -> int | None:
    """Return the cursor as a later program finds it."""
    with Cursor(path) as cursor:
        return cursor.after(topic)


def test_the_record_at_which_a_loop_is_left_comes_again(client: Client, topic: str, path: Path) -> None:
    ack = client.publish(topic, [b"a", b"b", b"c", b"d"])
    assert take(client, topic, path, 2, after=0) == [b"a", b"b"]
    assert kept(path, topic) == ack.first
    assert take(client, topic, path, 3, after=0) == [b"b", b"c", b"d"]
    assert kept(path, topic) == ack.last - 1
    assert take(client, topic, path, 1, after=ack.last) == [b"d"]


def test_a_cursor_of_the_application_moves_and_stays_open(client: Client, topic: str, path: Path) -> None:
    ack = client.publish(topic, [b"a", b"b", b"c"])
    with Cursor(path) as cursor:
        tail = client.tail(topic, cursor=cursor, after=0)
        assert cursor.position(topic) == (0, 0, -1)
        assert next(tail).value == b"a"
        assert cursor.after(topic) == 0
        assert next(tail).value == b"b"
        position = cursor.position(topic)
        assert position is not None
        assert (position.after, position.ordinal) == (ack.first, 1)
        assert position.log == client.topic(topic).log
        tail.close()  # type: ignore[attr-defined]
        cursor.save()
    assert kept(path, topic) == ack.first


def test_a_new_cursor_begins_now_and_says_so(client: Client, topic: str, path: Path) -> None:
    ack = client.publish(topic, [b"old", b"older"])
    tail: Any = client.tail(topic, cursor=path)
    last = client.publish(topic, [b"a", b"b"]).last
    with closing(tail):
        assert next(tail).value == b"a"
    assert kept(path, topic) == ack.last
    assert take(client, topic, path, 2) == [b"a", b"b"]
    assert kept(path, topic) == last - 1


def test_it_is_saved_while_it_waits(client: Client, topic: str, path: Path) -> None:
    client._timing.save_pause = 0.0
    acks = [client.publish(topic, value) for value in (b"a", b"b", b"c")]
    tail: Any = client.tail(topic, cursor=path, after=0)
    with closing(tail):
        assert [message.value for message in islice(tail, 3)] == [b"a", b"b", b"c"]
        acks.append(client.publish(topic, b"d"))
        assert next(tail).value == b"d"
        with pytest.raises(Exception, match="in use by process"):
            Cursor(path)
        assert str(acks[2].last).encode() in path.read_bytes()
    assert kept(path, topic) == acks[2].last


def test_what_makes_no_sense_leaves_the_file_free(client: Client, topic: str, path: Path) -> None:
    client.publish(topic, b"a")
    with refused("bad_request"):
        client.tail(topic, after=0, since=0, cursor=path)
    for _ in range(2):
        with refused("bad_topic"):
            client.tail("no/topic\0", cursor=path)
        gc.collect()
    assert take(client, topic, path, 1, after=0) == [b"a"]
