"""Addresses of slabs and pointers of the log that got their records: each is found from the other."""

from __future__ import annotations

import random

import pytest

from kit.disk.logs import OpenLog
from kit.scale import times
from quothlog.slabs import SlabAddresses, stored_in
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import NotFound

PRODUCER, OTHER = 7, 8


def test_each_is_found_from_the_other(open_log: OpenLog) -> None:
    """Batches of other producers, other logs and gaps lie in between."""
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    log = open_log()
    address, sequences = rng.randrange(1_000), {PRODUCER: 0, OTHER: 0}
    pointers: dict[int, int] = {}
    strangers: list[int] = []
    for _ in range(times(60, 1_000)):
        address += rng.choice((0, 0, rng.randrange(1, 100)))
        producer = rng.choice((PRODUCER, PRODUCER, OTHER))
        values = [bytes(rng.randrange(1, 30)) for _ in range(rng.randrange(1, 9))]
        flags = Flag.SPARSE | (0 if sequences[producer] else Flag.START)
        sequences[producer] = address + 1
        (stored,) = log.append_batches(
            [batch.encode(values, producer=producer, sequence=address + 1, flags=flags)]
        )
        assert not isinstance(stored, Exception), stored
        for row, value in enumerate(values):
            if producer == PRODUCER:
                pointers[address] = stored.first + row
            else:
                strangers.append(stored.first + row)
            address += 8 + len(value)
        if rng.random() < 0.3:
            strangers.append(log.append(b"of the log itself").first)
        if rng.random() < 0.1:
            log.roll()
    addresses = SlabAddresses(stored_in(log), PRODUCER)
    for expected, pointer in pointers.items():
        assert addresses.pointer_of(expected) == pointer
        assert addresses.address_of(pointer) == expected
        assert addresses.pointer_of(expected, after=pointer - 1, until=pointer) == pointer
    for pointer in (*strangers, 0, log.newest + 1):
        with pytest.raises(NotFound, match="unknown_record"):
            addresses.address_of(pointer)
    for unknown in {address, *(known + 1 for known in pointers)}:
        with pytest.raises(NotFound, match="unknown_record"):
            addresses.pointer_of(unknown)
