"""Fixtures of the tests of quothwire: damaged bytes, random messages, and the memory that a call takes.

The seed is fresh at each run. A failing test prints it, and the labels of damaged bytes have it.
`QUOTH_SEED=12345 pytest tests/quothwire` repeats a run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from kit.machine.processes import peak_of
from quothwire.errors import QuothError
from quothwire.protocol.value import Range

Decode = Callable[[Any], object]
Labelled = Iterator[tuple[str, bytes]]

FLIPS = (0x01, 0x80, 0xFF)


@pytest.fixture
def damaged(seed: int, rng: random.Random) -> Callable[[bytes], Labelled]:
    """Yield bytes with all kinds of damage: cut, changed and extended at each byte, and noise."""

    def damage(whole: bytes) -> Labelled:
        label = f"QUOTH_SEED={seed}"
        for end in range(len(whole)):
            yield f"{label} cut at {end}", whole[:end]
        for place, byte in enumerate(whole):
            for other in {byte ^ flip for flip in FLIPS} | {0, rng.randrange(256)} - {byte}:
                changed = whole[:place] + bytes([other]) + whole[place + 1 :]
                yield f"{label} byte {place} made {other:#04x}", changed
        for tail in (b"\0", b"\x80", b"9", bytes(64), rng.randbytes(9), whole):
            yield f"{label} followed by {tail[:9]!r}", whole + tail
        for length in range(40):
            yield f"{label} noise of {length} bytes", rng.randbytes(length)
        yield f"{label} zeros", bytes(len(whole))

    return damage


@pytest.fixture
def settle() -> Callable[[Decode, Any, Collection[str], str], Any]:
    """Decode to a value, or to None for an error with one of the codes; any other exception fails."""

    def decode_or_none(decode: Decode, given: Any, codes: Collection[str], label: str) -> Any:
        try:
            return decode(given)
        except Exception as problem:
            if not isinstance(problem, QuothError) or problem.code not in codes:
                pytest.fail(f"{label}: {problem!r} for {given!r}")
            return None

    return decode_or_none


@pytest.fixture
def peak_bytes() -> Callable[..., int]:
    """Measure the peak memory of a call, also of one that raises an error of Quoth."""

    def measure(call: Callable[..., object], *arguments: object) -> int:
        def act() -> None:
            with suppress(QuothError):
                call(*arguments)

        return peak_of(act)

    return measure


@pytest.fixture
def make_message(rng: random.Random) -> Callable[[type[Any]], Any]:
    """Make a message of a class with a valid random value in each field."""

    def make(kind: type[Any]) -> Any:
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{field.name: _value(hints[field.name], rng) for field in fields(kind)})

    return make


def _value(hint: Any, rng: random.Random) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        low, high, _ = next(part for part in parts if isinstance(part, Range))
        if get_origin(parts[0]) is list:
            return [_value(get_args(parts[0])[0], rng) for _ in range(rng.randint(low, high))]
        return rng.choice((low, high, rng.randint(low, high), min(high, low + rng.randrange(300))))
    if origin is list:
        return [_value(parts[0], rng) for _ in range(rng.randrange(20))]
    if origin is dict:
        choices = (0, -1, 2**64 - 1, True, 0.5, "é", b"\xff", {"n": 1})
        return {_text(rng): rng.choice(choices) for _ in range(3)}
    if hint is float:
        return rng.choice((0.0, rng.random() * 1e9))
    if hint is bool:
        return rng.random() < 0.5
    if hint is int:
        return rng.choice((0, -1, -(2**63), 2**64 - 1))
    assert hint is str, f"no random value for {hint}"
    return _text(rng)


def _text(rng: random.Random) -> str:
    return "".join(chr(rng.choice((0, 65, 0xE9, 0x20AC, 0x1F4E8))) for _ in range(rng.randrange(40)))
