"""The order in which an attempt at a part asks, whatever is answered in whatever order: without a socket."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from kit.broker.peers import refused
from kit.scale import times
from quoth.columns import columns
from quoth.core.outgoing import BATCH_BYTES
from quoth.core.request_state import RequestState
from quoth.core.staging import IN_FLIGHT_BYTES, IN_FLIGHT_MAX, PartStaging, TransactionName
from quothwire import batch
from quothwire.errors import QuothError, error
from quothwire.protocol import binary_codec
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Staged

NAME = TransactionName("t", "app", 0)
OK = Staged(1, 1, 1)


@pytest.fixture
def staging() -> PartStaging:
    """An attempt."""
    return PartStaging(NAME, 0, batch.BATCH_BYTES_MAX, 60.0)


def put(staging: PartStaging, count: int, size: int = 1) -> None:
    """Put in batches of one record."""
    for _ in range(count):
        taken = columns(bytes(size), None, None)
        assert list(staging.put(taken, staging.sizes_of(taken))) == []
        staging.seal()


def number_of(asked: RequestState) -> int:
    """Return the number of its batch."""
    asked.begin(0, 0.0)
    number: int = binary_codec.decode_arguments(binary_codec.decode_call(asked.frames)).number
    return number


def answer(staging: PartStaging, asked: RequestState, code: str = "") -> None:
    """Answer one, with an error if there is a code."""
    staging.take(asked, Answer(0, error(code, "of the test") if code else OK, b""))


@pytest.mark.parametrize(("count", "size"), [(IN_FLIGHT_MAX, 1), (2, IN_FLIGHT_BYTES // 2)])
def test_staging_accepts_batches_up_to_a_number_and_a_size_in_flight(
    staging: PartStaging, count: int, size: int
) -> None:
    put(staging, count - 1, size)
    assert staging.has_room
    put(staging, 1, size)
    assert not staging.has_room
    first, *_ = staging.leaving()
    answer(staging, first)
    assert staging.has_room
    assert not staging.is_settled


def test_batches_refused_behind_an_awaited_one_wait_for_it_as_do_new_ones(
    staging: PartStaging,
) -> None:
    put(staging, 3)
    first, second, third = staging.leaving()
    answer(staging, second, "out_of_sequence")
    put(staging, 1)
    assert list(staging.leaving()) == []
    answer(staging, third, "out_of_sequence")
    assert list(staging.leaving()) == []
    answer(staging, first)
    assert list(map(number_of, staging.leaving())) == [1, 2, 3]


def test_first_batch_that_is_out_of_order_behind_staged_ones_ends_the_attempt(
    staging: PartStaging,
) -> None:
    put(staging, 2)
    first, second = staging.leaving()
    answer(staging, first)
    answer(staging, second, "out_of_sequence")  # of before the first one was staged, perhaps
    (again,) = staging.leaving()
    with refused("not_staged"):
        answer(staging, again, "out_of_sequence")
    with refused("not_staged"):
        staging.check()


def test_answer_to_an_earlier_copy_is_ignored_by_staging(staging: PartStaging) -> None:
    put(staging, 2)
    first, second = staging.leaving()
    answer(staging, second, "out_of_sequence")
    answer(staging, first)
    (again,) = staging.leaving()
    answer(staging, second, "sequence_reused")
    answer(staging, again)
    assert staging.is_settled


@pytest.mark.parametrize("code", ["sequence_reused", "storage_failed", "too_large", "already_published"])
def test_lasting_error_ends_the_attempt_at_any_batch(staging: PartStaging, code: str) -> None:
    put(staging, 3)
    _, second, _ = staging.leaving()
    with pytest.raises(QuothError) as problem:
        answer(staging, second, code)
    assert problem.value.code == code
    assert "part 0 of version 0 of 'app' on topic 't'" in problem.value.text


def test_temporary_error_does_not_settle_a_batch(staging: PartStaging) -> None:
    put(staging, 1)
    (asked,) = staging.leaving()
    asked.begin(0, 0.0)
    for code in ("busy", "recovering", "stopping", "disk_low"):
        asked.unanswered = 1
        assert not asked.is_settled_by(Answer(0, error(code, "of the test"), b""), 0.0), code


def test_staging_stores_all_batches_in_order_whatever_order_they_arrive_in(
    rng: random.Random, seed: int
) -> None:
    """Requests arrive in any order, as when the broker was busy for some of them."""
    for _ in range(times(100, 300)):
        staging = PartStaging(NAME, 0, batch.BATCH_BYTES_MAX, 60.0)
        put(staging, rng.randint(1, IN_FLIGHT_MAX))
        stored: list[int] = []
        arriving: list[RequestState] = []
        while not staging.is_settled:
            arriving += staging.leaving()
            assert arriving, f"QUOTH_SEED={seed}: it waits for nothing"
            asked = arriving.pop(rng.randrange(len(arriving)))
            if (number := number_of(asked)) > len(stored):
                answer(staging, asked, "out_of_sequence")
            else:
                stored.append(number)
                answer(staging, asked)
        assert stored == list(range(len(stored))), f"QUOTH_SEED={seed}"


def test_batches_of_columns_end_at_a_mebibyte(rng: random.Random, seed: int) -> None:
    staging = PartStaging(NAME, 0, batch.BATCH_BYTES_MAX, 60.0)
    sizes = [rng.choice((1, 1_000, BATCH_BYTES // 2, 2 * BATCH_BYTES)) for _ in range(200)]
    taken = columns([bytes(size) for size in sizes], [None] * 200, [{}] * 200)
    for _ in staging.put(taken, staging.sizes_of(taken)):
        pass
    staging.seal()
    found = [batch.check(one._payload or b"") for one in staging.leaving()]
    assert sum(header.records for header in found) == 200
    for header, following in pairwise(found):
        whole = header.body_bytes + following.body_bytes
        assert header.records == 1 or header.body_bytes <= BATCH_BYTES + 8, f"QUOTH_SEED={seed}"
        assert whole > BATCH_BYTES, f"QUOTH_SEED={seed}: two that fit into one"
