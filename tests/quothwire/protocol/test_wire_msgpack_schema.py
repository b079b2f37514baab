"""Messages as msgpack maps: every field of every message against its annotation, and hostile maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgpack
import pytest

from kit.text.wording import error_of, names_python
from quothwire.pointer import POINTER_MAX
from quothwire.protocol import msgpack_schema
from quothwire.protocol.messages import (
    REQUESTS,
    CreateTopic,
    Fetch,
    Hello,
    ListTopics,
    Operation,
    Pong,
    Topics,
)
from quothwire.protocol.value import Range

KINDS: list[tuple[type[Any], bool]] = [
    *((kind, True) for kind in REQUESTS.values()),
    *((kind, False) for kind in dict.fromkeys(kind.reply for kind in REQUESTS.values())),
]
NAN, INFINITE = float("nan"), float("inf")
NEVER_INTEGERS: tuple[Any, ...] = (True, False, None, 1.0, NAN, INFINITE, "1", b"1", [], {}, [1])
WRONG: dict[Any, tuple[Any, ...]] = {
    str: (None, 1, True, 1.5, b"text", [], {}, ["a"]),
    bool: (None, 0, 1, 1.0, "true", b"", [], {}),
    int: NEVER_INTEGERS,
    float: (None, True, False, "1.5", b"", [], {}),
    list: (None, 1, True, "names", b"", {}, {"a": 1}),
    dict: (None, 1, True, "a", b"", [], [["a", 1]], {b"a": 1}),
}

every_kind = pytest.mark.parametrize(("kind", "strict"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])


def wrong_values(hint: Any) -> list[Any]:
    """Return values that a field with this annotation must refuse."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = next(part for part in parts if isinstance(part, Range))
        outside = {bounds.low - 1, bounds.high + 1, -(2**63), 2**64 - 1, 2**63}
        beyond = [value for value in outside if not bounds.low <= value <= bounds.high]
        return [*NEVER_INTEGERS, *(value for value in beyond if -(2**63) <= value < 2**64)]
    if origin is list:
        return [*WRONG[list], *([value] for value in wrong_values(parts[0]))]
    return list(WRONG[origin or hint])


def unpack_raw(kind: type[Any], content: Any, strict: bool) -> Any:
    return msgpack_schema.unpack(kind, msgpack.packb(content), strict=strict)


def text_of(call: Callable[..., object], *arguments: object, code: str = "bad_request") -> str:
    """Return the text of the error that a call raises, which people of any language can read."""
    problem = error_of(call, *arguments)
    assert problem.code == code
    assert len(problem.text) < 300
    assert problem.text.isprintable()
    assert not names_python(problem)
    return problem.text


def named(kind: type[Any]) -> str:
    """Return the name of a message in a text."""
    return kind.operation.name.lower() if hasattr(kind, "operation") else "the reply"


def code_of(hint: Any, value: Any, strict: bool) -> str:
    """Return the code for a value that does not fit. A request's number above its bounds has another one."""
    bounds = next((part for part in get_args(hint) if isinstance(part, Range)), None)
    if not strict or bounds is None or type(value) is not int or value < bounds.high:
        return "bad_request"
    return "bad_pointer" if bounds.high == POINTER_MAX else "too_large"


@every_kind
def test_message_is_read_as_it_was_written_and_its_fields_keep_their_bounds(
    kind: type[Any], strict: bool, make_message: Callable[[type[Any]], Any]
) -> None:
    for _ in range(50):
        message = make_message(kind)
        assert msgpack_schema.unpack(kind, msgpack_schema.pack(message), strict=strict) == message
    right = dataclasses.asdict(message)
    hints = get_type_hints(kind, include_extras=True)
    for name, hint in ((field.name, hints[field.name]) for field in dataclasses.fields(kind)):
        for wrong in wrong_values(hint):
            code = code_of(hint, wrong, strict)
            text = text_of(unpack_raw, kind, {**right, name: wrong}, strict, code=code)
            assert text.startswith(f"{name} of {named(kind)} is "), wrong
            assert ": it must be " in text, wrong
        bounds = next((part for part in get_args(hint) if isinstance(part, Range)), None)
        if bounds is not None:
            for value in (bounds.low, bounds.high):
                assert getattr(unpack_raw(kind, {**right, name: value}, strict), name) == value


@every_kind
def test_missing_field_has_its_default_and_an_unknown_one_is_ignored_in_a_reply_alone(
    kind: type[Any], strict: bool, make_message: Callable[[type[Any]], Any]
) -> None:
    message = make_message(kind)
    right = dataclasses.asdict(message)
    for field in dataclasses.fields(kind):
        rest = {name: value for name, value in right.items() if name != field.name}
        if field.default is not dataclasses.MISSING:
            assert getattr(unpack_raw(kind, rest, strict), field.name) == field.default
        elif field.default_factory is not dataclasses.MISSING:
            assert getattr(unpack_raw(kind, rest, strict), field.name) == field.default_factory()
        else:
            assert field.name in text_of(unpack_raw, kind, rest, strict)
    for name in ("brand_new", "", "__class__", "operation", "é" * 500, b"after"):
        content: dict[Any, Any] = {**right, name: 1}
        if strict:
            text_of(unpack_raw, kind, content, strict)
        else:
            assert unpack_raw(kind, content, strict) == message


def test_error_of_a_number_has_the_number_and_its_range() -> None:
    text = "after of fetch is {}: it must be an integer from 0 to 72057594037927935"
    for value, said, code in (
        (-1, "-1", "bad_request"),
        (2**56, "72057594037927936", "bad_pointer"),
        (1.0, "1.0", "bad_request"),
        (True, "true", "bad_request"),
        (None, "nil", "bad_request"),
        ("1", "'1'", "bad_request"),
        ("", "empty", "bad_request"),
        (b"1", "binary data", "bad_request"),
        ([1], "a list", "bad_request"),
        ({}, "a map", "bad_request"),
    ):
        assert text_of(unpack_raw, Fetch, {"after": value}, True, code=code) == text.format(said)


def test_every_operation_has_a_request_a_reply_and_its_number() -> None:
    assert set(REQUESTS) == set(Operation)
    assert sorted(Operation) == list(range(1, 31)), "the numbers are on the wire"


def nested(depth: int) -> Any:
    """Return nested lists of this depth."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


# Each is put where any value is allowed, so that the error is about the value itself.
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "unused byte": b"\xc1",
    "a value and a byte": b"\x01\x00",
    "map without its value": b"\x81\xa1a",
    "map32 of 4 Gi": b"\xdf\xff\xff\xff\xff",
    "array32 of 4 Gi": b"\xdd\xff\xff\xff\xff",
    "bin32 of 4 Gi": b"\xc6\xff\xff\xff\xff",
    "str32 of 4 Gi": b"\xdb\xff\xff\xff\xff",
    "ext32 of 4 Gi": b"\xc9\xff\xff\xff\xff\x01",
    "extension": b"\xd4\x05\x00",
    "extensions without content": b"\xdc\x00\x40" + b"\xc7\x00\x05" * 64,
    "time of 96 bits": b"\xc7\x0c\xff" + bytes(12),
    "key twice": b"\x82\xa1a\x01\xa1a\x01",
    "number as key": b"\x81\x01\x01",
    "NaN as key": b"\x81\xcb\x7f\xf8" + bytes(6) + b"\x01",
    "array as key": b"\x81\x90\x01",
    "extension as key": b"\x81\xd4\x05\x00\x01",
    "key that is no UTF-8": b"\x81\xa1\xff\x01",
    "text that is no UTF-8": b"\xa2\xc0\xaf",
    "a level too deep": msgpack.packb(nested(8)),
    "arrays in arrays, 100,000": b"\x91" * 100_000,
    "arrays in arrays, ended": b"\x91" * 500 + b"\x90",
    "arrays in arrays, each of 65,535": b"\xdc\xff\xff" * 1_020 + bytes(900_000),
    "maps in maps, each of 1,024": b"\xde\x04\x00\xa1a" * 1_020,
    "a million empty maps": b"\xdd" + (10**6).to_bytes(4, "big") + b"\x80" * 10**6,
}
NO_MAP = (b"\xc0", b"\x05", b"\xa8settings", b"\xc4\x01a", b"\x90", msgpack.packb([["time", 5]]), b"\x80\x80")


def as_request(packed: bytes) -> object:
    return msgpack_schema.unpack(CreateTopic, packed, strict=True)


def as_reply(packed: bytes) -> object:
    return msgpack_schema.unpack(Pong, packed, strict=False)


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_hostile_value_is_refused_and_takes_little_memory(
    value: bytes, peak_bytes: Callable[..., int]
) -> None:
    request = b"\x81\xa8settings\x81\xa7max_age" + value
    reply = b"\x82\xa4time\x05\xa5later" + value
    text_of(as_request, request)
    text_of(as_reply, reply)
    assert peak_bytes(as_request, request) < 2**20
    assert peak_bytes(as_reply, reply) < 10 * 2**20, "replies have higher limits"


def test_arguments_that_are_no_map_are_refused() -> None:
    for packed in (*NO_MAP, *HOSTILE.values()):
        text_of(as_request, packed)
        text_of(as_reply, packed)


def test_depth_is_limited_to_twice_that_of_the_deepest_message() -> None:
    content = {"time": 5, "later": {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}, "list": nested(7)}
    assert unpack_raw(Pong, content, False) == Pong(5)
    text_of(unpack_raw, Pong, {"time": 5, "list": nested(8)}, False)
    text_of(unpack_raw, Pong, {"time": 5, "later": {"a": content}}, False)
    assert unpack_raw(CreateTopic, {"settings": {"a": nested(2)}}, True) == CreateTopic({"a": [[]]})
    for deep in ({"a": nested(3)}, {"a": {"b": {"c": 1}}}, {"a": [[1]]}):
        text_of(unpack_raw, CreateTopic, {"settings": deep}, True)


def test_key_that_occurs_twice_is_refused() -> None:
    assert as_reply(b"\x82\xa4time\x05\xa5later\x05") == Pong(5)
    for key in ("time", "later"):
        text_of(as_reply, b"\x83\xa4time\x05\xa5later\x05" + msgpack.packb(key) + b"\x05")
    text_of(as_request, b"\x82" + (b"\xa8settings\x80") * 2)


def test_request_is_read_up_to_the_limit_of_bytes() -> None:
    name = "x" * (msgpack_schema.REQUEST_BYTES_MAX - len(msgpack_schema.pack(Hello(""))) - 2)
    assert len(msgpack_schema.pack(Hello(name))) == msgpack_schema.REQUEST_BYTES_MAX
    assert msgpack_schema.unpack(Hello, msgpack_schema.pack(Hello(name)), strict=True) == Hello(name)
    assert "8193 bytes" in text_of(unpack_raw, Hello, {"client": name + "x"}, True)


def test_listing_is_read_up_to_the_limit_of_topics() -> None:
    topics = Topics([f"{number:0200d}" for number in range(1_000)])
    assert msgpack_schema.unpack(Topics, msgpack_schema.pack(topics), strict=False) == topics
    assert len(msgpack_schema.pack(topics)) < msgpack_schema.REPLY_BYTES_MAX
    assert "at most" in text_of(unpack_raw, Topics, {"names": ["x" * 2**20]}, False)
    text_of(unpack_raw, Topics, {"names": [""] * (msgpack_schema.REPLY_ELEMENTS_MAX + 1)}, False)


def test_number_in_any_width_is_the_same_number() -> None:
    for width in (b"\xcc\x05", b"\xcd\0\x05", b"\xce\0\0\0\x05", b"\xcf" + bytes(7) + b"\x05", b"\xd0\x05"):
        assert msgpack_schema.unpack(Fetch, b"\x81\xa5after" + width, strict=True) == Fetch(after=5)


def test_error_quotes_little_of_a_request() -> None:
    for content in ({"limit": "x" * 8_000}, {"x" * 8_000: 1}, {"limit": [["é" * 4_000]]}, {"\n" * 8_000: 1}):
        text_of(unpack_raw, ListTopics, content, True)


def test_value_that_cannot_be_encoded_is_refused() -> None:
    settings: list[dict[str, Any]] = [
        {"max_bytes": 2**64},
        {"max_bytes": -(2**63) - 1},
        {"durability": object()},
        {"\udcff": 1},
    ]
    messages: list[Any] = [*map(CreateTopic, settings), ListTopics(after="\ud800")]
    for message in messages:
        text = text_of(msgpack_schema.pack, message)
        assert text.startswith(f"{message.operation.name.lower()} cannot be encoded: ")
