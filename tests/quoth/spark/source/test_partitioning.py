"""The ranges of a query as tasks: all of them, none twice, alike, and not more than are worth it."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.broker.model import BrokerModel
from quoth import NotFound, RequestError
from quoth.spark.options import Options, parse
from quoth.spark.source.partitioning import PARTITION_BYTES, extents_now, partitions, tasks_for
from quoth.spark.source.range_reader import DataLoss, TopicRange


def options(**given: str) -> Options:
    """The options of a batch query, of all topics by default."""
    topics = {} if "subscribe" in given else {"subscribePattern": ".*"}
    return parse({"url": "tcp://127.0.0.1:1", **topics, **given}, stream=False)


def nothing_lost(loss: DataLoss) -> None:
    """Receive losses where there are none."""
    raise AssertionError(loss)


def pointers(model: BrokerModel, **given: str) -> dict[str, list[int]]:
    """Read the pointers of a batch query, without losses."""
    losses: list[DataLoss] = []
    chosen = options(**given)
    found: dict[str, list[int]] = {}
    for task in partitions(model, extents_now(model, chosen, losses.append), chosen, losses.append):
        for one in task:
            found.setdefault(one.topic, []).extend(model.topic_models[one.topic].above(one.after, one.until))
    assert losses == []
    return found


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=6),
    st.integers(1, 12),
)
def test_tasks_have_the_requested_number_similar_sizes_and_every_record_once(
    topics: list[list[int]], wanted: int
) -> None:
    model = BrokerModel()
    for number, batches in enumerate(topics):
        for records in batches:
            model.append(f"t{number}", records)
    chosen = options(minPartitions=str(wanted))
    tasks = partitions(model, extents_now(model, chosen, nothing_lost), chosen, nothing_lost)
    read = [
        (one.topic, pointer)
        for task in tasks
        for one in task
        for pointer in model.topic_models[one.topic].above(one.after, one.until)
    ]
    assert read == [(topic, one) for topic in model.topics() for one in model.topic_models[topic].kept]
    total = len(read)
    assert len(tasks) <= 2 * wanted + 1
    largest = max(sum(one.records for one in task) for task in tasks)
    assert largest < -(-total // wanted) + 30, "batches of up to 30 are not divided"


def sizes_of_tasks(model: BrokerModel, **given: str) -> list[int]:
    """The records of each task of a batch query."""
    chosen = options(**given)
    tasks = partitions(model, extents_now(model, chosen, nothing_lost), chosen, nothing_lost)
    return [sum(one.records for one in task) for task in tasks]


def test_a_topic_is_cut_into_tasks_and_small_ones_share_them(model: BrokerModel) -> None:
    for _ in range(64):
        model.append("a", 10)
    assert sizes_of_tasks(model, minPartitions="8") == [80] * 8
    model.append("b", 10)
    sizes = sizes_of_tasks(model, minPartitions="1", maxRecordsPerPartition="100")
    assert max(sizes) <= 100
    assert len(sizes) in (7, 8)
    small = BrokerModel()
    for number in range(100):
        small.append(f"t{number}", 3)
    assert sizes_of_tasks(small, minPartitions="4") == [75] * 4


def test_without_a_number_there_are_as_many_tasks_as_processors_and_more_for_much(model: BrokerModel) -> None:
    for _ in range(640):
        model.append("a", 1)
    assert len(sizes_of_tasks(model)) == (os.cpu_count() or 1)
    sizes = {0: 8, 8 * PARTITION_BYTES: 8, 8 * PARTITION_BYTES + 1: 9, 64 * PARTITION_BYTES: 64}
    assert {size: tasks_for(size, 8) for size in sizes} == sizes


def test_bounds_include_where_they_start_and_not_where_they_end(model: BrokerModel) -> None:
    found = [*model.append("a", 4), *model.append("a", 4)]
    asked = {"startingOffsets": f'{{"a": {found[2]}}}', "endingOffsets": f'{{"a": {{"0": {found[6]}}}}}'}
    assert pointers(model, **asked) == {"a": found[2:6]}
    assert pointers(model, since=str(found[2]), until=str(found[6])) == {"a": found[2:6]}
    assert pointers(model, startingOffsets="earliest", endingOffsets="latest") == {"a": found}
    assert pointers(model, endingOffsets='{"a": -1}', startingOffsets='{"a": -2}') == {"a": found}
    assert pointers(model, since=str(found[-1] + 1)) == {}


def test_times_are_in_milliseconds(model: BrokerModel) -> None:
    early = model.append("a", 500)
    late = model.append("a", 1_000)
    at = late[0] // 1_000 + 1
    split = at * 1_000 - late[0]
    assert pointers(model, startingTimestamp=str(at)) == {"a": late[split:]}
    assert pointers(model, endingTimestamp=str(at)) == {"a": early + late[:split]}
    assert pointers(model, startingOffsetsByTimestamp=f'{{"a": {at}}}') == {"a": late[split:]}
    both = {"endingOffsetsByTimestamp": f'{{"a": {{"0": {at}}}}}', "endingOffsets": "latest"}
    assert pointers(model, **both) == {"a": early + late[:split]}, "the time counts"


def test_a_pointer_below_what_is_kept_is_a_loss(model: BrokerModel) -> None:
    first = model.append("a", 4)[0]
    kept = model.append("a", 4)
    model.trim_batches("a", 1)
    losses: list[DataLoss] = []
    extents = extents_now(model, options(subscribe="a", startingOffsets=f'{{"a": {first}}}'), losses.append)
    assert losses == [DataLoss("a", first - 1, kept[0], 4, "trimmed")]
    assert [(one.after, one.until) for one in extents] == [(first - 1, kept[-1])]
    assert pointers(model, since=str(first)) == {"a": kept}, "from a time on it is none"
    assert pointers(model) == {"a": kept}, "nor from the earliest on"


def test_named_topics_exist_a_pattern_may_match_none_and_ending_offsets_name_all(model: BrokerModel) -> None:
    with pytest.raises(NotFound, match="unknown_topic"):
        pointers(model, subscribe="a")
    assert pointers(model) == {}
    model.append("a", 1)
    model.append("b", 1)
    with pytest.raises(RequestError, match="ending offsets: nothing is said of b"):
        pointers(model, endingOffsets='{"a": -1}')


def test_records_removed_before_a_batch_is_planned_are_a_loss_and_the_others_are_read(
    model: BrokerModel,
) -> None:
    for topic in "abc":
        model.append(topic, 5)
    extents = [
        TopicRange(model.url, topic, topic_model.log, 0, topic_model.last, 5, 0)
        for topic, topic_model in sorted(model.topic_models.items())
    ]
    del model.topic_models["a"], model.topic_models["b"]
    model.append("b", 2)
    losses: list[DataLoss] = []
    tasks = partitions(model, extents, options(), losses.append)
    assert [one.topic for task in tasks for one in task] == ["c"]
    assert [(loss.topic, loss.records, loss.reason) for loss in losses] == [
        ("a", 5, "deleted"),
        ("b", 5, "recreated"),
    ]


def test_records_removed_between_counting_and_dividing_are_a_loss(model: BrokerModel) -> None:
    for _ in range(3):
        model.append("a", 5)
    (extent,) = extents_now(model, options(), nothing_lost)
    model.meanwhile = lambda: setattr(model, "meanwhile", lambda: model.trim_batches("a", 1))
    losses: list[DataLoss] = []
    tasks = partitions(model, [extent], options(), losses.append)
    assert sum(one.records for task in tasks for one in task) == 10
    assert [loss.records for loss in losses] == [5]
