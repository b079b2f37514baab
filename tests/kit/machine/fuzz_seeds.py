"""The vectors as inputs of the fuzzers in `client/c/fuzz`, which say what their bytes mean.

`python -m kit.machine.fuzz_seeds FOLDER` writes those of each fuzzer into a folder of its name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgpack

from quothwire import batch as wire

VECTORS = Path(__file__).parents[2] / "vectors"
MENDED, STORED, RECORD_HEADERS = 1, 2, 4
"""What the first byte of an input for batch.c says."""
LOG = 0x0123_4567_89AB_CDEF
"""The id of the log that batches with STORED are checked for."""
ROW = 5
"""Batches that follow each other in an input."""
INPUT_BYTES_MAX = 1 << 16
"""Larger batches would make the fuzzer slow."""
HEADER_BYTES = 16
SEEDS = "batch", "codec", "key"


def write(folder: Path) -> dict[str, list[Path]]:
    """Write all seeds; returns the files of each fuzzer."""
    made = {"batch": _batches(), "codec": _messages(), "key": _key_files()}
    return {name: [_file(folder / name, content) for content in sorted(set(made[name]))] for name in SEEDS}


def _file(folder: Path, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / sha256(content).hexdigest()[:16]
    path.write_bytes(content)
    return path


def _batches() -> Iterator[bytes]:
    """Yield each batch as it is, and mended, and the headers of records."""
    vectors = json.loads((VECTORS / "batches.json").read_text())
    for kind in ("accepted", "read_only", "refused", "refused_if_new"):
        for one in vectors[kind]:
            content = bytes.fromhex(one["bytes"])
            if len(content) > INPUT_BYTES_MAX:
                continue
            yield bytes([STORED if one.get("log", "0") != "0" else 0]) + content
            yield bytes([MENDED]) + content
            yield bytes([MENDED | STORED]) + content
            for headers in one.get("headers") or ():
                pairs = {name: bytes.fromhex(value) for name, value in headers.items()}
                yield bytes([RECORD_HEADERS]) + msgpack.packb(pairs)

    yield from _rows([bytes.fromhex(one["bytes"]) for one in vectors["accepted"] if one["log"] == "0"])


def _rows(batches: list[bytes]) -> Iterator[bytes]:
    """Yield batches as a log stores them one behind the other."""
    small = [one for one in batches if len(one) < INPUT_BYTES_MAX // ROW]
    for begin in range(0, len(small), ROW):
        row, base, ordinal = bytes([STORED]), 1_000, 7
        for one in small[begin : begin + ROW]:
            header = wire.parse_header(one, 0)._replace(base=base, ordinal=ordinal)
            row += wire.stamp(header, LOG) + one[wire.HEADER_BYTES :]
            base, ordinal = base + header.records, ordinal + header.records
        yield row


def _messages() -> Iterator[bytes]:
    """Yield the frames of each message: kind, header, topic, number of frames, arguments."""
    vectors = json.loads((VECTORS / "fast.json").read_text())
    for kind in ("requests", "other_forms", "replies", "other_replies", "errors", "refused", "later"):
        for one in vectors[kind]:
            yield _input([bytes.fromhex(frame or "") for frame in one["frames"]])
    settlements = json.loads((VECTORS / "settlements.json").read_text())
    for one in (*settlements["accepted"], *settlements["refused"]):
        yield _input([b"", b"", bytes.fromhex(one["bytes"])])


def _input(frames: list[bytes]) -> bytes:
    header = frames[0][:HEADER_BYTES].ljust(HEADER_BYTES, b"\0")
    is_reply = len(header) > 4 and header[4] > 0
    topic = b"" if is_reply or len(frames) < 2 else frames[1]
    arguments = frames[(1 if is_reply else 2) :][:1]
    shape = bytes([is_reply]), header, bytes([min(len(topic), 255), len(frames) % 256])
    return b"".join([*shape, *arguments])[:INPUT_BYTES_MAX]


def _key_files() -> Iterator[bytes]:
    """Yield key files: whole, of a broker, public, in other forms of TOML, and with a mistake."""
    keys = ["".join(chr(33 + (row * 7 + place) % 2 + 16) for place in range(40)) for row in range(4)]
    name, servers = 'name = "alice"', f'server-key = "{keys[0]}"\nserver-key-next = "{keys[1]}"'
    public, secret = f'public-key = "{keys[2]}"', f'secret-key = "{keys[3]}"'
    yield f"# alice\n[metadata]\n{name}\n{servers}\n\n[curve]\n{public}\n{secret}\n".encode()
    yield f"[metadata]\n{name}\n[curve]\n{public}\n{secret}".encode()
    yield f"[curve]\r\n{public}\r\n".encode()
    yield f"[other]\nx = [1,\n2]\n[ curve ] # c\n\t{public}# c\nsecret-key='{keys[3]}'".encode()
    yield f'[metadata]\nname = "a \\"b\\" \u00e9"\n[curve]\n{public}\n{public}'.encode()
    yield f"[metadata]\nserver-key-next = '{keys[1]}'\n[curve]\n{public}".encode()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
