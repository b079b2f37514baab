"""Compiled functions, while the collector runs code that empties the lists in their arguments."""

from __future__ import annotations

import copy
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kit.pure import needs_compiled, outcome, pure
from quoth.batch import messages_of
from quothwire import batch
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetched, Operation, Publish
from quothwire.record import Record, records_in, records_of

pytestmark = needs_compiled
CALL = binary_codec.encode_request(Publish(), 7, "topic", b"payload")
ANSWER = binary_codec.encode_reply(
    Operation.FETCH, 7, Fetched(log=1, next=2, newest=3, gone=4, end=5), b"payload"
)
BATCH = batch.encode([b"first", b"second"], [b"key", None], [b"", b"\x81\xa1a\xc4\x01b"])


@contextmanager
def emptied_by_the_collector(*lists: list[Any]) -> Iterator[None]:
    """Collect at each allocation that can, and empty the lists then."""

    def empty(phase: str, info: dict[str, int]) -> None:
        for one in lists:
            one.clear()

    threshold = gc.get_threshold()
    gc.callbacks.append(empty)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(empty)


@pytest.mark.parametrize(
    ("decode", "frames"), [(binary_codec.decode_call, CALL), (binary_codec.decode_answer, ANSWER)]
)
def test_frames_that_a_collection_drops_are_decoded_or_refused(
    decode: Callable[[list[bytes]], Any], frames: list[bytes]
) -> None:
    allowed = outcome(decode, frames), outcome(decode, [])
    for _ in range(100):
        given = [bytes(bytearray(frame)) for frame in frames]  # held by the list alone
        with emptied_by_the_collector(given):
            found = outcome(decode, given)
        assert found in allowed


def test_columns_that_a_collection_empties_give_all_records_or_none() -> None:
    plain: Callable[..., list[Record]] = pure("quothwire.record").records_of
    for _ in range(100):
        decoded = batch.decode(BATCH)
        whole = contents(plain(decoded))
        with emptied_by_the_collector(decoded.values, decoded.keys or [], decoded.headers or []):
            found = records_of(decoded)
        assert contents(found) in ([], whole)


def test_headers_that_drop_themselves_from_their_list_are_held() -> None:
    class Dropping(bytes):
        def __bool__(self) -> bool:
            headers.clear()
            return True

    header, values, _, _ = batch.decode(batch.encode([b"a"]))
    headers: list[bytes] = [Dropping(b"\x81\xa1a\xc4\x01b")]
    found = batch.DecodedBatch(header, values, None, headers)
    assert contents(records_of(found)) in ([], [(0, b"a", None, {"a": b"b"})])


def contents(records: list[Record]) -> list[tuple[Any, ...]]:
    return [(record.pointer, record.value, record.key, dict(record.headers)) for record in records]


def test_columns_that_a_collection_empties_give_the_first_messages() -> None:
    for _ in range(100):
        header, values, keys, _ = batch.decode(BATCH)
        whole = list(messages_of("topic", header.base, list(values), list(keys or []), None))
        with emptied_by_the_collector(values, keys or []):
            found = list(messages_of("topic", header.base, values, keys, None))
        assert found == whole[: len(found)]


def test_columns_that_a_collection_empties_give_the_first_records() -> None:
    plain: Callable[..., list[Record]] = pure("quothwire.record").records_of
    for _ in range(100):
        decoded = batch.decode(BATCH)
        whole = contents(plain(decoded))
        with emptied_by_the_collector(decoded.values, decoded.keys or [], decoded.headers or []):
            found = list(records_in(decoded))
        assert contents(found) == whole[: len(found)]


def test_headers_that_take_the_next_record_as_they_are_looked_at_get_it() -> None:
    class Asking(bytes):
        def __bool__(self) -> bool:
            asked.extend(record.value for record in [next(records, None)] if record)
            return True

    asked: list[bytes] = []
    header, values, _, _ = batch.decode(batch.encode([b"%d" % row for row in range(9)]))
    headers: list[bytes] = [Asking(b"\x81\xa1a\xc4\x01b") for _ in values]
    records = records_in(batch.DecodedBatch(header, values, None, headers), -1)
    looked_at = [record.value for record in records]
    assert sorted(looked_at + asked) == values


def test_iterators_of_messages_and_records_cannot_be_copied() -> None:
    """A copy would be filled by Cython, which does not check what it fills in."""
    for one in (messages_of("topic", 1, [b"a"], None, None), records_in(batch.decode(BATCH))):
        with pytest.raises(TypeError):
            copy.copy(one)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 or newer has buffers in Python")
def test_frames_whose_buffers_change_the_list_are_decoded_or_refused() -> None:
    class Changing:
        def __init__(self, frame: Any, frames: list[Any]) -> None:
            self.frame, self.frames = frame, frames

        def __buffer__(self, flags: int) -> memoryview:
            self.frames.clear()
            return memoryview(self.frame)

    for decode, frames in ((binary_codec.decode_call, CALL), (binary_codec.decode_answer, ANSWER)):
        given: list[Any] = []
        given += Changing(frames[0], given), *(bytes(bytearray(frame)) for frame in frames[1:])
        assert outcome(decode, given) in (outcome(decode, frames), outcome(decode, []))
