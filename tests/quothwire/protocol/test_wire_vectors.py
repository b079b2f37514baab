"""The golden bytes of tests/vectors, compared with the documented layout and with this implementation.

The decoders in this file use struct, msgpack and xxh3-64 and nothing of the package, so that the vectors do
not only repeat what the package writes. Other clients are tested with the same vectors. Published bytes never
change: another layout is another version.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgpack
import pytest
from xxhash import xxh3_64_intdigest

from kit.text.wording import code_of
from quothwire import batch, ingest, topic
from quothwire.errors import CODES, Disconnected, error
from quothwire.headers import decode_headers, encode_headers
from quothwire.protocol import announcement, binary_codec, text_codec
from quothwire.protocol.messages import REQUESTS, WITHOUT_TOPIC, Operation
from quothwire.protocol.settlement import Settle, Settlement, decode_settlements, encode_settlements
from quothwire.protocol.text_codec import SimpleSettle

Vector = dict[str, Any]

FOLDER = Path(__file__).parents[2] / "vectors"
NAMES = ("batches", "fast", "settlements", "simple", "announcements")
NAMED = (Operation.LIST, Operation.STATUS, Operation.LIST_GROUPS, Operation.METRICS)
"""The operations in whose requests `after` is a name."""
DOUBLES_EXACT = 2**53 - 1
"""The largest integer of JSON that every reader reads exactly."""


def load(name: str) -> Vector:
    """Read one file. Convert the fields that its `integers` names, which are in quotes, to numbers."""
    read: Vector = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    integers = frozenset(read["integers"])
    for part, value in read.items():
        if part not in ("about", "integers", "version"):
            read[part] = _numbered(value, integers)
    return read


def _numbered(value: Any, integers: frozenset[str]) -> Any:
    if isinstance(value, list):
        return [_numbered(inner, integers) for inner in value]
    if not isinstance(value, dict):
        return value
    if value.get("operation") in NAMED and "topic" in value:
        integers -= {"after"}
    return {
        name: _as_int(inner) if name in integers else _numbered(inner, integers)
        for name, inner in value.items()
    }


def _as_int(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_int(inner) for inner in value]
    assert isinstance(value, str), f"{value} has to be in quotes"
    return int(value)


BATCHES, FAST, SETTLEMENTS, SIMPLE, ANNOUNCEMENTS = map(load, NAMES)


def each(vectors: list[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "vector", vectors, ids=[vector.get("name") or vector["topic"][:20] for vector in vectors]
    )


def unhex(digits: Any) -> Any:
    """Return hex as bytes, also in lists and in the values of maps; null stays null."""
    if isinstance(digits, list):
        return [unhex(item) for item in digits]
    if isinstance(digits, dict):
        return {name: unhex(value) for name, value in digits.items()}
    return None if digits is None else bytes.fromhex(digits)


def in_order(value: Any) -> Any:
    """Return a map as its pairs, because equality of maps ignores their order."""
    return [(name, in_order(inner)) for name, inner in value.items()] if isinstance(value, dict) else value


# batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_vectors_hold_no_number_that_a_double_cannot_hold(name: str) -> None:
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    whole: list[int] = []
    json.loads(text, parse_int=lambda digits: whole.append(int(digits)))
    assert whole or name == "announcements"
    assert [number for number in whole if abs(number) > DOUBLES_EXACT] == []


def test_vectors_have_the_version_of_the_package_and_name_all_fields_that_may_have_64_bits() -> None:
    wide = {"correlation"}
    for kind in {kind for request in REQUESTS.values() for kind in (request, request.reply)}:
        for name, hint in get_type_hints(kind, include_extras=True).items():
            highs = [int(high) for high in re.findall(r"high=([0-9]+)", repr(get_args(hint)))]
            if max(highs, default=0) > DOUBLES_EXACT:
                wide.add(name)
    assert set(FAST["integers"]) == wide
    assert (BATCHES["version"], FAST["version"]) == (batch.VERSION, binary_codec.VERSION)


@each(BATCHES["accepted"])
def test_header_of_a_batch_has_the_documented_layout(vector: Vector) -> None:
    whole, header = unhex(vector["bytes"]), vector["header"]
    assert struct.unpack_from("<4sBBH", whole) == (b"QUOB", 1, header["kind"], header["flags"])
    assert struct.unpack_from("<II", whole, 8) == (header["body_bytes"], header["records"])
    assert struct.unpack_from("<QQ", whole, 16) == (header["base"], header["ordinal"])
    assert struct.unpack_from("<QQ", whole, 32) == (header["producer"], header["sequence"])
    assert struct.unpack_from("<QQ", whole, 48) == (header["body_check"], header["header_check"])
    assert len(whole) == 64 + header["body_bytes"]
    assert len(whole) % 8 == 0
    seed = header["records"] + (header["flags"] << 32) + (header["kind"] << 48)
    assert xxh3_64_intdigest(whole[64:], seed) == header["body_check"]
    assert xxh3_64_intdigest(whole[:56], vector["log"]) == header["header_check"]


@each(BATCHES["accepted"])
def test_body_of_a_batch_has_the_documented_layout(vector: Vector) -> None:
    body, count = unhex(vector["bytes"])[64:], len(vector["values"])
    assert bool(vector["header"]["flags"] & 1) is (vector["keys"] is not None)
    assert bool(vector["header"]["flags"] & 2) is (vector["headers"] is not None)
    present = [column for column in ("values", "keys", "headers") if vector[column] is not None]
    offsets = [struct.unpack_from(f"<{count + 1}i", body, 4 * (count + 1) * i) for i in range(len(present))]
    place = 4 * (count + 1) * len(present)
    validity = 0
    if vector["keys"] is not None:
        words = (count + 63) // 64
        validity = int.from_bytes(body[place : place + 8 * words], "little")
        place += 8 * words
    cells: dict[str, list[bytes]] = {}
    for column, ends in zip(present, offsets, strict=True):
        cells[column] = [body[place + ends[i] : place + ends[i + 1]] for i in range(count)]
        place += ends[-1]
    assert body[place:] == bytes(-place % 8)
    assert cells["values"] == unhex(vector["values"])
    if vector["keys"] is not None:
        keys = [key if validity >> i & 1 else None for i, key in enumerate(cells["keys"])]
        assert keys == unhex(vector["keys"])
        assert validity < 1 << count
    if vector["headers"] is not None:
        opened = [msgpack.unpackb(cell) if cell else {} for cell in cells["headers"]]
        assert list(map(in_order, opened)) == list(map(in_order, unhex(vector["headers"])))


@each(BATCHES["accepted"])
def test_batch_is_written_and_read_as_in_the_vector(vector: Vector) -> None:
    whole, log_id = unhex(vector["bytes"]), vector["log"]
    values, keys, headers = (unhex(vector[column]) for column in ("values", "keys", "headers"))
    expected = batch.Header(*list(vector["header"].values())[:9])
    cells = None if headers is None else [encode_headers(cell) for cell in headers]
    rest = expected.flags & ~(batch.Flag.KEYS | batch.Flag.HEADERS)
    written = batch.encode(
        values, keys, cells, producer=expected.producer, sequence=expected.sequence, flags=rest
    )
    assert batch.stamp(expected, log_id) + written[64:] == whole
    if not log_id:
        assert written == whole
        ingest.check_new(whole, batch.check(whole))
    decoded = batch.decode(whole, log_id)
    assert decoded[:3] == (expected, values, keys)
    opened = None if decoded.headers is None else [decode_headers(cell) for cell in decoded.headers]
    assert opened == headers


@each(BATCHES["read_only"])
def test_batch_in_another_form_is_read_as_in_the_vector(vector: Vector) -> None:
    whole = unhex(vector["bytes"])
    ingest.check_new(whole, batch.check(whole))
    decoded = batch.decode(whole, vector["log"])
    assert decoded[1:3] == (unhex(vector["values"]), unhex(vector["keys"]))
    opened = None if decoded.headers is None else [decode_headers(cell) for cell in decoded.headers]
    assert opened == unhex(vector["headers"])


@each(BATCHES["long"])
def test_long_batch_is_written_and_read_as_in_the_vector(vector: Vector) -> None:
    whole = unhex(vector["bytes"]) + bytes(vector["zeros"])
    values = [b""] * vector["records"]
    assert batch.encode(values) == whole
    assert batch.decode(whole, vector["log"]).values == values


@each(BATCHES["accepted"])
def test_batch_is_refused_with_any_byte_damaged_cut_anywhere_or_with_a_byte_behind_it(vector: Vector) -> None:
    whole, log_id = unhex(vector["bytes"]), vector["log"]
    damaged = [whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in range(len(whole))]
    for wrong in (*damaged, *(whole[:at] for at in range(len(whole))), whole + b"\0"):
        assert code_of(batch.check, wrong, log_id) == "bad_batch"


@each(BATCHES["refused"])
def test_batch_is_refused_as_in_the_vector(vector: Vector) -> None:
    for read in (batch.check, batch.decode):
        code = "too_large" if vector["name"] in BATCHES["too_large"] else "bad_batch"
        assert code_of(read, unhex(vector["bytes"]), vector["log"]) == code


@each(BATCHES["refused_if_new"])
def test_batch_that_is_invalid_if_new_is_read_if_stored(vector: Vector) -> None:
    raw = unhex(vector["bytes"])
    batch.decode(raw)
    assert code_of(ingest.check_new, raw, batch.check(raw)) == "bad_batch"


# the fast protocol --------------------------------------------------------------------------------------


def read_header(frames: Sequence[bytes], status: int, vector: Vector) -> None:
    assert len(frames[0]) == 16
    expected = (b"\xd1\x51", 1, vector["operation"], status, bytes(3), vector["correlation"])
    assert struct.unpack("<2sBBB3sQ", frames[0]) == expected


@each(FAST["requests"])
def test_request_has_the_documented_bytes_and_is_decoded(vector: Vector) -> None:
    frames, payload = unhex(vector["frames"]), unhex(vector["payload"])
    read_header(frames, 0, vector)
    assert frames[1] == vector["topic"].encode()
    assert in_order(msgpack.unpackb(frames[2])) == in_order(vector["arguments"])
    assert frames[3:] == ([] if payload is None else [payload])
    request = REQUESTS[Operation(vector["operation"])](**vector["arguments"])
    assert binary_codec.encode_request(request, vector["correlation"], vector["topic"], payload) == frames
    call = binary_codec.decode_call(frames)
    assert call[:2] == (vector["operation"], vector["correlation"])
    assert call.topic.decode() == vector["topic"]
    assert binary_codec.decode_arguments(call) == request
    assert call.payload == (payload or b"")


@each(FAST["other_forms"])
def test_request_in_another_form_is_decoded_as_in_the_vector(vector: Vector) -> None:
    frames = unhex(vector["frames"])
    read_header(frames, 0, vector)
    given = msgpack.unpackb(frames[2]) if len(frames) > 2 else {}
    assert vector["arguments"] == {**vector["arguments"], **given}
    call = binary_codec.decode_call(frames)
    assert (call.correlation, call.topic.decode()) == (vector["correlation"], vector["topic"])
    request = REQUESTS[Operation(vector["operation"])](**vector["arguments"])
    assert binary_codec.decode_arguments(call) == request
    assert call.payload == (unhex(vector["payload"]) or b"")
    left_out = {name: value for name, value in vector["arguments"].items() if name not in given}
    assert left_out == {name: vars(type(request)(**given))[name] for name in left_out}


@each(FAST["replies"])
def test_reply_has_the_documented_bytes_and_is_decoded(vector: Vector) -> None:
    frames, payload = unhex(vector["frames"]), unhex(vector["payload"])
    read_header(frames, 1, vector)
    assert in_order(msgpack.unpackb(frames[1])) == in_order(vector["arguments"])
    assert frames[2:] == ([] if payload is None else [payload])
    operation = Operation(vector["operation"])
    reply = REQUESTS[operation].reply(**vector["arguments"])
    assert binary_codec.encode_reply(operation, vector["correlation"], reply, payload) == frames
    assert binary_codec.decode_answer(frames) == (vector["correlation"], reply, payload or b"")


def test_errors_and_answers_of_a_later_broker_are_read_as_in_the_vectors() -> None:
    for vector in FAST["errors"]:
        frames = unhex(vector["frames"])
        read_header(frames, 2, vector)
        carried = {name: vector[name] for name in ("code", "text", "hint")}
        assert in_order(msgpack.unpackb(frames[1])) == in_order(carried)
        assert (
            binary_codec.encode_error(vector["operation"], vector["correlation"], error(**carried)) == frames
        )
    for vector in FAST["errors"] + FAST["later"] + FAST["other_replies"]:
        answer = binary_codec.decode_answer(unhex(vector["frames"]))
        assert answer.correlation == vector["correlation"]
        if "arguments" in vector:
            assert answer.reply == REQUESTS[Operation(vector["operation"])].reply(**vector["arguments"])
        else:
            problem = error(vector["code"], vector["text"], vector["hint"])
            assert isinstance(answer.reply, type(problem))
            assert vars(answer.reply) == vars(problem)


# settlements --------------------------------------------------------------------------------------------


@each(SETTLEMENTS["accepted"])
def test_settlement_has_the_documented_bytes_and_is_decoded(vector: Vector) -> None:
    whole, rows = unhex(vector["bytes"]), vector["rows"]
    assert [*struct.iter_unpack("<BBHIQQQQ", whole)] == [
        (row["kind"], 0, 0, 0, row["first"], row["last"], row["token"], row["milliseconds"]) for row in rows
    ]
    settlements = [Settlement(Settle(row["kind"]), *[*row.values()][1:]) for row in rows]
    assert encode_settlements(settlements) == whole
    assert decode_settlements(whole, len(rows)) == settlements


@each(SETTLEMENTS["refused"])
def test_settlement_is_refused_as_in_the_vector(vector: Vector) -> None:
    assert code_of(decode_settlements, unhex(vector["bytes"]), vector["rows"]) == vector["code"]


# the simple protocol ------------------------------------------------------------------------------------


def read_simple(frames: list[bytes]) -> Vector:
    """Return a simple request with the names of the vectors."""
    operation = text_codec.operation_of(frames)
    request: Vector = {"operation": frames[0].decode()}
    decoded: Any = text_codec.decode_request(operation, frames)
    if operation not in WITHOUT_TOPIC:
        request["topic"] = topic.decode_topic(frames[1])
    if operation is Operation.PUBLISH:
        request["values"] = decoded.values
    if operation is Operation.FETCH:
        request |= {"after": decoded.after, "limit": decoded.records_max, "wait_ms": decoded.wait_ms}
    if operation is Operation.GROUP_FETCH:
        request |= {"group": decoded.group, "limit": decoded.records_max, "wait_ms": decoded.wait_ms}
        request |= {"lease_ms": decoded.lease_ms}
    if operation is Operation.GROUP_SETTLE:
        request |= read_settle(request["operation"], frames, decoded)
    return request


def read_settle(word: str, frames: list[bytes], decoded: SimpleSettle) -> Vector:
    """Return the rest of a settlement. A row has the kind, the token, and the time of an extension."""
    generation, token, lease_ms = map(int, frames[3].split(b"-"))
    more = lease_ms if word == "group.extend" else 0
    for row in decoded.rows:
        assert (f"group.{row.kind.name.lower()}", row.token, row.milliseconds) == (word, token, more)
    assert (decoded.message.generation, decoded.message.rows) == (generation, len(decoded.rows))
    pointers = [pointer for row in decoded.rows for pointer in range(row.first, row.last + 1)]
    lease = {"generation": generation, "token": token, "lease_ms": lease_ms}
    return {"group": decoded.message.group, **lease, "pointers": pointers}


@each(SIMPLE["requests"])
def test_simple_request_is_read_as_in_the_vector(vector: Vector) -> None:
    expected = {name: value for name, value in vector.items() if name not in ("name", "frames")}
    if "values" in expected:
        expected["values"] = unhex(expected["values"])
    assert read_simple(unhex(vector["frames"])) == expected


def test_simple_answers_are_written_as_in_the_vectors() -> None:
    for vector in SIMPLE["replies"]:
        frames, rest = unhex(vector["frames"]), unhex(vector["rest"])
        assert frames == [b"ok", *(str(number).encode() for number in vector["numbers"]), *rest]
        assert text_codec.encode_ok(*vector["numbers"], rest=rest) == frames
    for vector in SIMPLE["records"]:
        frames, values = unhex(vector["frames"]), unhex(vector["values"])
        assert frames[:2] == [b"ok", str(vector["next"]).encode()]
        assert [int(frame) for frame in frames[2::2]] == vector["pointers"]
        assert frames[3::2] == values
        records = text_codec.encode_records(vector["pointers"], values)
        assert text_codec.encode_ok(vector["next"], rest=records) == frames
    for vector in SIMPLE["leased"] + SIMPLE["damaged_leases"]:
        frames = unhex(vector["frames"])
        lease = text_codec.SimpleLease(*(vector[name] for name in text_codec.SimpleLease._fields))
        if "values" in vector:
            columns = vector["pointers"], vector["attempts"], unhex(vector["values"])
            rows = [(b"%d" % one, b"%d" % other, value) for one, other, value in zip(*columns, strict=True)]
            assert frames == [
                b"ok",
                "-".join(map(str, lease)).encode(),
                *(cell for row in rows for cell in row),
            ]
            assert text_codec.encode_leased(lease, frames[2:]) == frames
        else:
            assert frames[3:] == [
                "-".join(map(str, lease)).encode(),
                *(b"%d" % one for one in vector["pointers"]),
            ]
            assert text_codec.encode_damaged_lease(lease, vector["pointers"]) == frames
    for vector in SIMPLE["errors"]:
        problem = error(vector["code"], vector["text"], vector["hint"])
        assert text_codec.encode_error(problem) == unhex(vector["frames"])
    for vector in SIMPLE["damaged"]:
        frames = unhex(vector["frames"])
        assert text_codec.encode_damaged(vector["text"], vector["next"]) == frames
        assert (len(frames), frames[:2], int(frames[3])) == (4, [b"error", b"damaged"], vector["next"])


# announcements, and what is refused ---------------------------------------------------------------------


def test_announcements_are_written_and_read_as_in_the_vectors() -> None:
    for vector in ANNOUNCEMENTS["accepted"]:
        whole = unhex(vector["bytes"])
        assert whole == vector["topic"].encode() + b"\0" + str(vector["newest"]).encode()
        assert announcement.encode(vector["topic"], vector["newest"]) == whole
        assert announcement.decode(whole) == (vector["topic"], vector["newest"])
        assert announcement.subscription(vector["topic"]) == unhex(vector["subscription"])


def test_frames_are_refused_as_in_the_vectors() -> None:
    def read_fast(frames: list[bytes]) -> None:
        binary_codec.decode_arguments(binary_codec.decode_call(frames))

    for vector in FAST["refused"]:
        assert code_of(read_fast, unhex(vector["frames"])) == vector["code"], vector["name"]
    for vector in SIMPLE["refused"]:
        assert code_of(read_simple, unhex(vector["frames"])) == vector["code"], vector["name"]
    for vector in ANNOUNCEMENTS["refused"]:
        assert code_of(announcement.decode, unhex(vector["bytes"])) == vector["code"], vector["bytes"]


def test_every_operation_and_every_code_of_a_broker_is_in_the_vectors() -> None:
    for part in ("requests", "replies"):
        assert {vector["operation"] for vector in FAST[part]} == set(Operation), part
    sent = {code for code, row in CODES.items() if row.error is not Disconnected}
    for errors in (FAST["errors"], SIMPLE["errors"]):
        assert {vector["code"] for vector in errors} == sent
    assert {unhex(vector["frames"])[0] for vector in SIMPLE["requests"]} == set(text_codec.OPERATIONS)
    answered = [vector["name"] for part in ("replies", "records", "leased") for vector in SIMPLE[part]]
    assert {"ping", "published", "read nothing", "topics", "settled", "nothing to hand out"} <= set(answered)
    kinds = {row["kind"] for vector in SETTLEMENTS["accepted"] for row in vector["rows"]}
    assert kinds == set(Settle)
