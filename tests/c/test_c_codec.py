"""The bytes of the C library against the golden vectors, and against Python's codec."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgpack
import pytest

from kit.machine.cprograms import Drive
from quothwire import batch as wire
from quothwire.errors import QuothError
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetch, Fetched, Operation, Publish, Published
from quothwire.protocol.msgpack_schema import pack, unpack

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
FAST: dict[str, Any] = json.loads((VECTORS / "fast.json").read_text())
BATCHES: dict[str, Any] = json.loads((VECTORS / "batches.json").read_text())
INTEGERS = frozenset(FAST["integers"])
SETTLEMENTS: dict[str, Any] = json.loads((VECTORS / "settlements.json").read_text())
ROUNDS = 20_000
HEADER = ("kind", "flags", "body_bytes", "records", "base", "ordinal", "producer", "sequence", "body_check")


def hexed(content: bytes) -> str:
    """Return bytes as the driver reads them."""
    return content.hex() or "-"


def packed(content: Any) -> bytes:
    """Encode a list or a map of a vector, with its integers as integers."""
    return bytes(msgpack.packb(plain(content)))


def plain(content: Any) -> Any:
    """Return a list or a map with numbers in place of the texts that stand for them."""
    match content:
        case dict():
            return {name: plain(one) for name, one in content.items()}
        case list():
            return [plain(one) for one in content]
        case str() if content.lstrip("-").isdigit():
            return int(content)
    return content


def field(name: str, content: Any) -> str:
    """Return a field of a vector as the driver prints it."""
    match content:
        case bool():
            return f"{name}={int(content)}"
        case int():
            return f"{name}={content}"
        case float():
            return f"{name}={content:.17g}"
        case str() if name in INTEGERS and content.lstrip("-").isdigit():
            return f"{name}={content}"
        case str():
            return f"{name}={hexed(content.encode())}"
    return f"{name}={hexed(packed(content))}"


def fields(vector: dict[str, Any]) -> list[str]:
    return [field(*one) for one in vector["arguments"].items()]


def line_of(kind: str, frames: list[str]) -> str:
    return " ".join(["decode", kind, *(frame or "-" for frame in frames)])


@pytest.mark.parametrize("kind", ["request", "reply"])
def test_messages_are_encoded_byte_for_byte_and_decoded(drive: Drive, kind: str) -> None:
    vectors = FAST["requests" if kind == "request" else "replies"]
    encoded = drive(
        " ".join(["encode", kind, str(one["operation"]), one["correlation"], *fields(one)]) for one in vectors
    )
    arguments = 2 if kind == "request" else 1
    for one, found in zip(vectors, encoded, strict=True):
        assert found.split() == [one["frames"][0], one["frames"][arguments]], one["name"]
    decoded = drive(line_of(kind, one["frames"]) for one in vectors)
    for one, found in zip(vectors, decoded, strict=True):
        status, operation, correlation, *content = found.split()
        assert (status, operation, correlation) == ("ok", str(one["operation"]), one["correlation"])
        assert {*fields(one)} <= {*content}, one["name"]


def test_errors_are_encoded_byte_for_byte_and_decoded(drive: Drive) -> None:
    for one in FAST["errors"]:
        content = [f"{name}={hexed(one[name].encode())}" for name in ("code", "text", "hint")]
        encoded, decoded = drive(
            [
                " ".join(["encode", "error", str(one["operation"]), one["correlation"], *content]),
                line_of("reply", one["frames"]),
            ]
        )
        assert encoded.split() == one["frames"]
        assert decoded.split() == ["ok", str(one["operation"]), one["correlation"], *content]


def test_fields_of_a_later_broker_are_ignored(drive: Drive) -> None:
    vectors = FAST["later"]
    found = drive(line_of("reply", one["frames"]) for one in vectors)
    for one, line in zip(vectors, found, strict=True):
        if one.get("code") == "unsupported_version":
            assert line.split() == ["version", one["correlation"]]
            continue
        word, operation, correlation, *content = line.split()
        expected = (
            fields(one) if "arguments" in one else [field(name, one[name]) for name in ("code", "text")]
        )
        assert (operation, correlation) == (str(one["operation"]), one["correlation"])
        assert {*expected} <= {*content}
        assert word == ("ok" if one.get("code") == "over_quota" else "later")


CODES = {"version": {"unsupported_version"}, "operation": {"unknown_operation"}, "bad": {"bad_request"}}
"""Return what the driver says of a header, and the code for it. Arguments are refused without a code."""


def test_wrong_requests_are_refused(drive: Drive) -> None:
    vectors = FAST["refused"]
    found = drive(line_of("request", one["frames"]) for one in vectors)
    for one, line in zip(vectors, found, strict=True):
        word = line.split()[0]
        assert word in ("frames", "fields", "later", *CODES), one["name"]
        assert one["code"] in CODES.get(word, {"bad_request", "bad_pointer", "too_large"}), one["name"]


def mutated(rng: random.Random, content: bytes) -> bytes:
    """Return bytes that differ from some bytes in one place, are cut, or go on."""
    place = rng.randrange(len(content))
    match rng.randrange(5):
        case 0:
            return content[:place]
        case 1:
            return content + rng.randbytes(rng.randrange(1, 4))
        case 2:
            return content[:place] + rng.randbytes(1) + content[place:]
        case _:
            return content[:place] + rng.randbytes(1) + content[place + 1 :]


def arguments_of(rng: random.Random) -> tuple[str, Operation, Any]:
    """Return a hot message with numbers of all sizes, and its operation."""

    def number(bits: int = 64) -> int:
        return rng.getrandbits(rng.randrange(1, bits + 1))

    durability = rng.choice(["", "written", "synced", "größer" * rng.randrange(12)])
    match rng.randrange(4):
        case 0:
            return "request", Operation.PUBLISH, Publish(durability)
        case 1:
            wanted = Fetch(
                number(56), number(63) - 1, 1 + number(32), 1 + number(32), rng.randrange(600_001), number(56)
            )
            return "request", Operation.FETCH, wanted
        case 2:
            published = Published(number(), number(56), number(56), number(), durability, rng.random() < 0.5)
            return "reply", Operation.PUBLISH, published
    return "reply", Operation.FETCH, Fetched(number(), number(56), number(56), number(), number(), number())


def test_hot_messages_are_those_of_python_also_when_damaged(drive: Drive, rng: random.Random) -> None:
    """Decode in C what Python decodes, and call nothing plain that Python refuses."""
    cases = [arguments_of(rng) for _ in range(ROUNDS)]
    encoded = drive(
        " ".join(["encode", kind, str(int(operation)), "7", *given(message)])
        for kind, operation, message in cases
    )
    for (_, _, message), found in zip(cases, encoded, strict=True):
        assert found.split()[1] == hexed(pack(message)), message
    damaged = [mutated(rng, pack(message)) for _, _, message in cases]
    headers = [found.split()[0] for found in encoded]
    decoded = drive(
        line_of(kind, [header, *(["-"] if kind == "request" else []), content.hex()])
        for (kind, _, _), header, content in zip(cases, headers, damaged, strict=True)
    )
    for (kind, _, message), content, found in zip(cases, damaged, decoded, strict=True):
        try:
            python = unpack(type(message), content, strict=kind == "request")
        except QuothError:
            assert found.split()[0] in ("fields", "later"), content
        else:
            word, _, _, *rest = found.split()
            assert word == "ok" or (kind == "reply" and word == "later"), content
            assert rest == given(python)


def given(message: Any) -> list[str]:
    """Return the fields of a message as the driver reads and prints them."""
    return [
        f"{name}={hexed(content.encode())}" if isinstance(content, str) else f"{name}={int(content)}"
        for name, content in vars(message).items()
    ]


# -- settlements --------------------------------------------------------------------------------------------


def rows_of(vector: dict[str, Any]) -> list[str]:
    """Return the rows of a vector as the driver reads and prints them."""
    return [":".join(map(str, row.values())) for row in vector["rows"]]


def test_settlements_are_written_byte_for_byte_and_read(drive: Drive) -> None:
    vectors = SETTLEMENTS["accepted"]
    written = drive(" ".join(["settle", *rows_of(one)]) for one in vectors)
    assert written == [one["bytes"] or "-" for one in vectors]
    read = drive(f"rows {len(one['rows'])} {one['bytes'] or '-'}" for one in vectors)
    assert [line.split() for line in read] == [["ok", *rows_of(one)] for one in vectors]


def test_settlements_that_are_wrong_are_refused(drive: Drive) -> None:
    vectors = SETTLEMENTS["refused"]
    found = drive(f"rows {one['rows']} {one['bytes'] or '-'}" for one in vectors)
    assert found == [one["code"] for one in vectors]


# -- batches ------------------------------------------------------------------------------------------------


def record_of(value: str, key: str | None, headers: bytes) -> str:
    return f"{value or '-'}:{'~' if key is None else key or '-'}:{hexed(headers)}"


def records_of(vector: dict[str, Any]) -> list[str]:
    """Return the records of a vector as the driver reads them; its columns may be absent."""
    count = len(vector["values"])
    headers = [
        msgpack.packb({name: bytes.fromhex(value) for name, value in one.items()}) if one else b""
        for one in vector["headers"] or [{}] * count
    ]
    return list(map(record_of, vector["values"], vector["keys"] or [None] * count, headers))


def test_whole_batches_are_parsed(drive: Drive) -> None:
    found = drive(f"batch {one['log']} {one['bytes']}" for one in BATCHES["accepted"])
    for one, line in zip(BATCHES["accepted"], found, strict=True):
        header = one["header"]
        word, *rest = line.split()
        assert (word, rest[:9]) == ("ok", [str(header[name]) for name in HEADER]), one["name"]
        expected = records_of(one)
        if one["headers"] is None:
            expected = [record.rpartition(":")[0] + ":~" for record in expected]
        assert rest[9:] == expected, one["name"]


def test_batches_are_written_byte_for_byte(drive: Drive) -> None:
    fresh = [one for one in BATCHES["accepted"] if one["log"] == "0"]
    found = drive(
        " ".join(
            [
                "write",
                *(str(one["header"][name]) for name in ("flags", "producer", "sequence")),
                *records_of(one),
            ]
        )
        for one in fresh
    )
    assert found == [one["bytes"] for one in fresh]


def test_batches_that_are_wrong_are_refused(drive: Drive) -> None:
    found = drive(f"batch {one['log']} {one['bytes'] or '-'}" for one in BATCHES["refused"])
    too_large = set(BATCHES["too_large"])
    for one, line in zip(BATCHES["refused"], found, strict=True):
        assert line == ("too_large" if one["name"] in too_large else "bad_batch"), one["name"]
    for one, line in zip(
        BATCHES["refused_if_new"],
        drive(f"new {one['bytes']}" for one in BATCHES["refused_if_new"]),
        strict=True,
    ):
        assert line == "bad_batch", one["name"]


def test_batches_of_python_and_their_mutations_are_judged_as_python_does(
    drive: Drive, rng: random.Random
) -> None:
    whole = [bytes.fromhex(one["bytes"]) for one in BATCHES["accepted"] if one["log"] == "0"]
    cases = [*whole, *(mutated(rng, rng.choice(whole)) for _ in range(2_000))]
    for content, line in zip(cases, drive(f"batch 0 {hexed(one)}" for one in cases), strict=True):
        assert line.split()[0] == outcome(content)


def outcome(content: bytes) -> str:
    """Return what Python says of the bytes of a new batch."""
    try:
        wire.decode(content)
    except QuothError as problem:
        return problem.code
    return "ok"


def test_python_understands_the_frames_of_c(drive: Drive) -> None:
    (line,) = drive(["encode request 4 9 after=5 wait_ms=7"])
    header, arguments = map(bytes.fromhex, line.split())
    call = binary_codec.decode_call([header, b"orders", arguments])
    assert (call.correlation, binary_codec.decode_arguments(call)) == (9, Fetch(5, wait_ms=7))
