"""Offsets of a stream: it reads every record once, through appends, trims and restarts."""

from __future__ import annotations

import json
from collections.abc import Container

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.broker.model import BrokerModel
from quoth import NotFound, RequestError
from quoth.spark.options import Options, parse
from quoth.spark.source.offset_planner import Offset, OffsetPlanner, TopicPosition
from quoth.spark.source.partitioning import extents_between, partitions
from quoth.spark.source.range_reader import DataLoss, TopicRange


def options(**given: str) -> Options:
    """The options of a stream, of all topics by default."""
    topics = {} if "subscribe" in given else {"subscribePattern": ".*"}
    return parse({"url": "tcp://127.0.0.1:1", **topics, **given}, stream=True)


class Stream:
    """A query as Spark runs it: what it journals survives a restart, what it has read and lost is counted."""

    def __init__(self, model: BrokerModel, **given: str) -> None:
        self.model = model
        starts = {} if any(name.startswith("starting") for name in given) else {"startingOffsets": "earliest"}
        self.options = options(**starts, **given)
        self.losses: list[DataLoss] = []
        self.read: list[tuple[str, int]] = []
        self.batches: list[int] = []
        self.journal: list[str] = []
        self.restart()

    def restart(self) -> None:
        """A new process with the same checkpoint."""
        self.progress = OffsetPlanner(self.model, self.options, self.losses.append)
        self.initial: Offset | None = None

    def begin(self) -> Offset:
        """The initial offset, after a way through JSON as in Spark."""
        if self.initial is None:
            self.initial = self.progress.begin()
        return through_json(self.initial)

    def plan(self, *, capped: bool = True) -> bool:
        """Journal the end of the next batch; False if there is nothing to do."""
        start = Offset.from_json(json.loads(self.journal[-1])) if self.journal else self.begin()
        end = self.progress.reach(start, capped=capped)
        if end is start:
            return False
        self.journal.append(json.dumps(end.to_json()))
        return True

    def extents(self) -> list[TopicRange]:
        """The extents of the batch that was journalled last."""
        end = Offset.from_json(json.loads(self.journal[-1]))
        start = Offset.from_json(json.loads(self.journal[-2])) if len(self.journal) > 1 else self.begin()
        return extents_between(self.model.url, start, end)

    def run(self) -> None:
        """Read the batch that was journalled last."""
        before = len(self.read)
        for tasks in partitions(self.model, self.extents(), self.options, self.losses.append):
            for one in tasks:
                found = self.model.topic_models[one.topic].above(one.after, one.until)
                assert len(found) == one.records
                self.read += [(one.topic, pointer) for pointer in found]
        self.batches.append(len(self.read) - before)

    def drain(self, *, capped: bool = True) -> None:
        """Plan and run until there is nothing to do."""
        while self.plan(capped=capped):
            self.run()

    @property
    def known(self) -> Container[str]:
        """The topics that it has seen."""
        return Offset.from_json(json.loads(self.journal[-1])).topics

    @property
    def lost(self) -> int:
        """The number of records that were reported as lost."""
        return sum(loss.records for loss in self.losses)


def through_json(offset: Offset) -> Offset:
    """As Spark keeps it."""
    return Offset.from_json(json.loads(json.dumps(offset.to_json())))


@given(st.data())
@settings(max_examples=150)
def test_every_record_is_read_once_or_reported_as_lost(data: st.DataObject) -> None:
    model = BrokerModel()
    model.append("a", 3)
    limit = data.draw(st.integers(1, 12), label="limit")
    stream = Stream(model, maxOffsetsPerTrigger=str(limit), failOnDataLoss="false")
    appended = {("a", pointer) for pointer in model.topic_models["a"].kept}
    planned = stream.plan()
    for _ in range(data.draw(st.integers(1, 25), label="steps")):
        topic = data.draw(st.sampled_from("abc"), label="topic")
        match data.draw(
            st.sampled_from(("append", "append", "trim", "plan", "run", "restart")), label="step"
        ):
            case "append":
                records = data.draw(st.integers(1, 9), label="records")
                appended |= {(topic, pointer) for pointer in model.append(topic, records)}
            case "trim" if topic in stream.known:  # what went before a new topic was seen is no loss
                model.trim_batches(topic, data.draw(st.integers(0, 3), label="batches"))
            case "plan" if not planned:
                planned = stream.plan()
            case "run" if planned:
                stream.run()
                planned = False
            case "restart":
                stream.restart()
    if planned:
        stream.run()
    stream.drain()
    assert len(set(stream.read)) == len(stream.read)
    assert set(stream.read) <= appended
    assert stream.lost == len(appended) - len(stream.read)


def test_records_published_before_an_uncommitted_first_batch_are_read(model: BrokerModel) -> None:
    model.append("a", 5)
    stream = Stream(model, startingOffsets="latest")
    stream.begin()
    model.append("a", 3)
    stream.plan()
    stream.restart()  # and the first batch was not committed
    model.append("a", 4)
    stream.run()
    stream.drain()
    assert [pointer for _, pointer in stream.read] == model.topic_models["a"].kept[5:]


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(any),
    st.integers(1, 50),
)
def test_a_limit_is_shared_by_backlog_and_rounded_up(records: list[int], limit: int) -> None:
    model = BrokerModel()
    for number, count in enumerate(records):
        model.append(f"t{number}", max(count, 1))
        if not count:
            model.trim_batches(f"t{number}", 1)
    stream = Stream(model, maxOffsetsPerTrigger=str(limit))
    stream.plan()
    taken = {one.topic: one.records for one in stream.extents()}
    total = sum(records)
    for number, count in enumerate(records):
        assert taken.get(f"t{number}", 0) == min(count, -(-limit * count // total))


def test_a_limit_of_one_topic_is_exact_and_a_trigger_without_limits_takes_all(model: BrokerModel) -> None:
    for _ in range(10):
        model.append("a", 7)
    stream = Stream(model, maxOffsetsPerTrigger="16")
    stream.drain()
    assert stream.batches == [16, 16, 16, 16, 6]
    stream = Stream(model, maxOffsetsPerTrigger="16")
    stream.drain(capped=False)
    assert stream.batches == [70]


def test_bytes_are_limited_by_whole_batches(model: BrokerModel) -> None:
    for _ in range(4):
        model.append("a", 10)
    stream = Stream(model, maxBytesPerTrigger="1500")  # 100 bytes a record
    stream.drain()
    assert stream.batches == [15, 15, 10]
    for _ in range(2):
        model.append("b", 10)
    stream.drain()
    assert stream.batches[3:] == [15, 5]


def test_available_now_ends_where_the_topics_ended_and_leaves_out_those_that_come_later(
    model: BrokerModel,
) -> None:
    model.append("a", 10)
    stream = Stream(model, maxOffsetsPerTrigger="4")
    stream.progress.aim()
    while stream.plan():
        model.append("a", 3)
        model.append("b", 1)
        stream.run()
    assert stream.batches == [4, 4, 2]
    stream.restart()
    stream.drain()
    assert len(stream.read) == 10 + 9 + 3


def test_a_batch_waits_for_enough_records_or_for_its_time(model: BrokerModel) -> None:
    model.append("a", 2)
    waiting = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h"}
    stream = Stream(model, **waiting)
    stream.drain()
    assert stream.batches == [2], "the first batch does not wait"
    model.append("a", 4)
    assert not stream.plan()
    model.append("a", 1)
    stream.drain()
    model.append("a", 1)
    stream.drain(capped=False)
    assert stream.batches == [2, 5, 1], "Trigger.Once does not wait"
    for begun, aims in ((waiting, True), ({**waiting, "maxTriggerDelay": "1us"}, False)):
        stream = Stream(model, **begun)
        stream.drain()
        model.append("a", 1)
        if aims:
            stream.progress.aim()
        stream.drain()
        assert stream.batches[1:] == [1], "AvailableNow does not wait, nor does a query whose time is over"


def test_records_removed_before_they_are_planned_are_counted_in_the_offset(model: BrokerModel) -> None:
    read = model.append("a", 3)
    stream = Stream(model)
    stream.drain()
    model.append("a", 4)
    kept = model.append("a", 5)
    model.trim_batches("a", 2)
    stream.drain()
    assert stream.losses == [DataLoss("a", read[-1], kept[0], 4, "trimmed")]
    assert Offset.from_json(json.loads(stream.journal[-1])).topics["a"].lost == 4
    assert [pointer for _, pointer in stream.read] == read + kept


def test_only_records_removed_while_a_batch_is_planned_are_lost(model: BrokerModel) -> None:
    batches = [model.append("a", 5) for _ in range(4)]
    stream = Stream(model, maxOffsetsPerTrigger="8", failOnDataLoss="false")
    stream.begin()
    model.meanwhile = lambda: setattr(model, "meanwhile", lambda: model.trim_batches("a", 1))
    stream.drain()
    assert [pointer for _, pointer in stream.read] == [*batches[1], *batches[2], *batches[3]]
    assert stream.lost == 5


def test_ordinals_reused_after_a_loss_of_power_hide_no_record(model: BrokerModel) -> None:
    model.append("a", 3)
    model.append("a", 4)
    stream = Stream(model)
    stream.drain()
    model.lose_power("a")
    anew = model.append("a", 2)
    stream.drain()
    assert [pointer for _, pointer in stream.read[7:]] == anew
    assert stream.losses == []


def test_a_deleted_topic_is_reported_once_and_a_new_one_is_read_from_its_beginning(
    model: BrokerModel,
) -> None:
    model.append("a", 3)
    model.append("b", 3)
    stream = Stream(model)
    stream.drain()
    del model.topic_models["a"]
    stream.drain()
    model.append("b", 1)
    stream.drain()
    assert [(loss.topic, loss.records, loss.reason) for loss in stream.losses] == [("a", -1, "deleted")]
    del model.topic_models["b"]
    anew = model.append("b", 2)
    stream.drain()
    assert [pointer for _, pointer in stream.read[7:]] == anew
    assert [loss.reason for loss in stream.losses] == ["deleted", "recreated"]


def test_a_topic_that_is_named_and_does_not_exist_is_waited_for(model: BrokerModel) -> None:
    stream = Stream(model, subscribe="a", startingOffsets="latest")
    stream.drain()
    model.append("a", 2)
    stream.drain()
    assert stream.batches == [0, 2]


def test_a_topic_that_is_not_asked_for_any_more_is_left_where_it_was(model: BrokerModel) -> None:
    model.append("a", 2)
    model.append("b", 2)
    stream = Stream(model, subscribe="a,b")
    stream.drain()
    model.append("a", 3)
    model.append("b", 1)
    stream.options = options(subscribe="b")
    stream.restart()
    stream.drain()
    assert stream.batches == [4, 1]
    stream.options = options(subscribe="a,b")
    stream.restart()
    stream.drain()
    assert stream.batches == [4, 1, 3]


def test_a_pointer_behind_the_newest_record_is_refused_and_a_time_follows_the_strategy(
    model: BrokerModel,
) -> None:
    pointers = model.append("a", 9)
    middle = Stream(model, subscribe="a", startingOffsets=json.dumps({"a": pointers[4]}))
    middle.drain()
    assert [pointer for _, pointer in middle.read] == pointers[4:]
    assert Offset.from_json(json.loads(middle.journal[-1])).topics["a"].ordinal == 9
    with pytest.raises(RequestError, match=r"bad_pointer.*lies behind the newest record"):
        Stream(model, subscribe="a", startingOffsets=json.dumps({"a": pointers[-1] + 2})).begin()
    behind = {"subscribe": "a", "startingTimestamp": "1700000000000"}
    with pytest.raises(RequestError, match=r"bad_pointer.*startingOffsetsByTimestampStrategy"):
        Stream(model, **behind).begin()
    for begin in (
        {"subscribe": "a", "startingOffsets": json.dumps({"a": pointers[-1] + 1})},
        {**behind, "startingOffsetsByTimestampStrategy": "latest"},
    ):
        stream = Stream(model, **begin)
        stream.drain()
        assert stream.read == []


def test_starting_offsets_name_every_topic_that_exists_and_no_other(model: BrokerModel) -> None:
    model.append("a", 2)
    model.append("b", 2)
    with pytest.raises(RequestError, match="nothing is said of b"):
        Stream(model, startingOffsets='{"a": -2}').begin()
    with pytest.raises(RequestError, match="c is not read"):
        Stream(model, startingOffsets='{"a": -2, "b": -1, "c": -1}').begin()
    with pytest.raises(NotFound, match="unknown_topic"):
        Stream(model, subscribe="c", startingOffsets='{"c": -2}').begin()


def test_offsets_in_a_checkpoint_stay_as_they_are() -> None:
    log = "00c0ffee00c0ffee"
    journalled = (
        f'{{"quoth": 1, "topics": {{"orders": {{"next": 17, "ordinal": 2, "log": "{log}", "lost": 1}}}}, '
        f'"_from": {{"orders": {{"next": 16, "ordinal": 1, "log": "{log}", "lost": 1}}}}, "_init": true}}'
    )
    found = Offset.from_json(json.loads(journalled))
    topics, began = ({"orders": TopicPosition(*at, log=int(log, 16), lost=1)} for at in ((17, 2), (16, 1)))
    assert found == Offset(topics, began, initial=True)
    assert json.dumps(found.to_json()) == journalled


def test_a_checkpoint_of_another_source_is_refused() -> None:
    with pytest.raises(RequestError, match="a checkpoint of its own"):
        Offset.from_json({"orders": {"0": 17}})
