"""Whole batches, segments and settings in a wrong place: they cost nothing but what they have replaced."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import quoth
from kit.client.reading import by_portions
from kit.disk.corruptions import Left, Scene, leave_behind
from kit.disk.damage import flip, insert, swap, truncate
from kit.disk.logs import segments
from quoth import Gap
from quothd import Broker
from quothlog.recovery.repair import repair
from quothlog.recovery.verify import Damage, records
from quothwire.batch import HEADER_BYTES
from quothwire.record import Record

END = b"published behind the damage"


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """The directory of a broker that was killed."""
    return leave_behind(tmp_path_factory.mktemp("left") / "data", killed=True)


def unheard(_gap: Gap) -> None:
    """Ignore a gap."""


def test_what_is_published_behind_a_misleading_header_is_read(left: Left, tmp_path: Path) -> None:
    """Readers go by headers, an opening by bodies: a later batch that stands too early and is broken besides
    must not make them disagree about where the log goes on."""
    scene = Scene(left, tmp_path / "data")
    eight, nine = scene.stored[8], scene.stored[9]
    truncate(nine.path, nine.end)
    swap(nine.path, (eight.start, eight.end), (nine.start, nine.end))
    flip(nine.path, eight.start + HEADER_BYTES + 1)  # the body of batch 9, which stands where 8 stood
    with Broker(scene.directory) as broker, quoth.connect(broker) as client:
        for value in (END, b"and once more"):
            client.publish("t", value)
            assert client.read("t", on_gap=unheard)[-1].value == value


@pytest.mark.parametrize("number", [9, 11])
@pytest.mark.parametrize("place", range(8))
def test_a_copy_of_a_later_batch_in_an_earlier_segment_costs_nothing(
    left: Left, tmp_path: Path, number: int, place: int
) -> None:
    scene = Scene(left, tmp_path / "data")
    insert(scene.stored[place].path, scene.stored[place].start, left.written[number])
    with Broker(scene.directory) as broker, quoth.connect(broker) as client:
        assert client.read("t", on_gap=unheard) == left.published


@pytest.mark.parametrize("whose", ["other", "t"])
@pytest.mark.parametrize("row", range(3))
def test_a_segment_that_does_not_belong_here_hides_nothing(
    left: Left, tmp_path: Path, whose: str, row: int
) -> None:
    """Another topic's, or a copy, under a name within the pointers of a segment, or behind the last one."""
    scene = Scene(left, tmp_path / "data")
    floor = int(scene.segments[row].stem) + 1
    source = segments(scene.other)[1] if whose == "other" else scene.segments[0]
    shutil.copy(source, scene.folder / f"{floor:017d}.seg")
    with Broker(scene.directory) as broker, quoth.connect(broker) as client:
        client.publish("t", END)
        assert by_portions(client, "t", END)[0] == left.published


def test_looking_at_the_files_tells_no_record_twice_and_a_repair_sets_the_copy_aside(
    left: Left, tmp_path: Path
) -> None:
    scene = Scene(left, tmp_path / "data")
    copy = scene.folder / f"{left.published[3].pointer:017d}.seg"
    shutil.copy(scene.segments[2], copy)
    data = copy.read_bytes()
    told = list(records(scene.folder))
    pointers = [one.pointer for one in told if isinstance(one, Record)]
    assert pointers == [message.pointer for message in left.published]
    assert [one.path for one in told if isinstance(one, Damage)] == [copy]
    mended = list(repair(scene.folder, log_id=left.log_id, others=("topic.json",)))
    assert copy in [one.path for one in mended]
    assert not copy.exists()
    assert copy.with_name(f"{copy.name}.1.damaged").read_bytes() == data
    assert [one.pointer for one in records(scene.folder) if isinstance(one, Record)] == pointers


def test_settings_of_another_topic_hide_no_record(left: Left, tmp_path: Path) -> None:
    """Folder and segments agree which log it is; only the settings say another one."""
    scene = Scene(left, tmp_path / "data")
    shutil.copy(scene.other / "topic.json", scene.settings)
    with Broker(scene.directory) as broker, quoth.connect(broker) as client:
        assert [one.value for one in client.read("t")] == [one.value for one in left.published]
        assert "another topic" in client.topic("t").problem
        assert [one.value for one in client.read("other")] == [one.value for one in left.others]
