"""Files of another version: the error names the file and what to do, and the file stays unchanged.

Each is a file of the golden directory with another version number and the right checksum.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

import quoth
from kit.broker.brokers import StartBroker
from kit.broker.peers import refused
from kit.clocks import START, ManualClock
from kit.disk.golden import FOREVER, LEDGER, UNDECIDED
from kit.machine.commands import Command
from kit.text.wording import error_of
from quoth.spark.archive.store import read_manifest
from quothd.datadir import manifest
from quothlog import Log, file_format
from quothlog.datadir import topic_file
from quothlog.reading import forwarding_progress
from quothlog.recovery import verify
from quothwire.record import Record

GOLDEN = Path(__file__).parent / "golden" / "v1"
LEDGER_FOLDER = f"data/topics/ledger~{LEDGER:016x}"
UNDECIDED_FOLDER = f"data/topics/undecided~{UNDECIDED:016x}"
OTHERS = (0, 2, 255)
Rewrite = Callable[[int, bytes], bytes]


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """Return a copy of the golden directory."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "golden"))


def with_block(version: int, data: bytes) -> bytes:
    """Return a segment or staged file, whose header block has the checksum at its end, of another version."""
    return with_index(version, data[:96]) + data[96:]


def with_index(version: int, data: bytes) -> bytes:
    """Return an index of another version."""
    checked = data[:8] + version.to_bytes(4, "little") + data[12:-8]
    return checked + xxh3_64_intdigest(checked).to_bytes(8, "little")


def with_line(version: int, data: bytes) -> bytes:
    """Return a file of one line of JSON and its checksum, of another version."""
    return checked_line(data.partition(b"\n")[0].replace(b'"version": 1', b'"version": %d' % version))


def checked_line(line: bytes) -> bytes:
    return line + b"\n" + xxh3_64_hexdigest(line).encode() + b"\n"


def with_plan(version: int, data: bytes) -> bytes:
    """Return a commit plan of another version."""
    _, *lines, _ = data.splitlines(keepends=True)
    text = b"".join([b"%d\n" % version, *lines])
    return text + xxh3_64_hexdigest(text).encode() + b"\n"


def with_mark(version: int, data: bytes) -> bytes:
    """Return a file of forwarding progress of another version, which has no checksum."""
    return data.replace(b'"version": 1', b'"version": %d' % version)


def with_manifest(version: int, data: bytes) -> bytes:
    """Return the manifest of an archive of another version."""
    text = data.decode().partition('"manifest": ')[2][:-2].replace('"archive": 1', f'"archive": {version}')
    return f'{{"checksum": "{xxh3_64_hexdigest(text.encode())}",\n"manifest": {text}}}\n'.encode()


def open_log(path: Path) -> None:
    """Open the log of a file with its staged batches."""
    with Log.open(path.parent, clock=ManualClock(START), others=("topic.json",)) as log:
        log.transactions()


def records_beside(path: Path) -> list[object]:
    """Read the log of a file without the lock."""
    return list(verify.records(path.parent))


def rewritten(path: Path, of_version: Rewrite, version: int) -> bytes:
    """Change the version of a file, and return its new content."""
    before = path.read_bytes()
    assert of_version(1, before) == before, "the function writes files of version 1 as they are"
    path.write_bytes(of_version(version, before))
    return path.read_bytes()


FILES: dict[str, tuple[str, Rewrite, Callable[[Path], object]]] = {
    "a segment": (f"{LEDGER_FOLDER}/*.seg", with_block, open_log),
    "a segment, read without the lock": (f"{LEDGER_FOLDER}/*.seg", with_block, records_beside),
    "staged batches": (f"{UNDECIDED_FOLDER}/*.staged", with_block, open_log),
    "a plan": (f"{UNDECIDED_FOLDER}/{file_format.PLAN_NAME}", with_plan, open_log),
    "a plan, read without the lock": (
        f"{UNDECIDED_FOLDER}/{file_format.PLAN_NAME}",
        with_plan,
        records_beside,
    ),
    "a topic's settings": (
        f"{LEDGER_FOLDER}/{topic_file.NAME}",
        with_line,
        lambda path: topic_file.decode(path.read_bytes()),
    ),
    "a mark": ("outbox/orders.forward", with_mark, forwarding_progress.read_mark),
    "a backup": (f"backup/{manifest.NAME}", with_line, lambda path: manifest.load(path.parent)),
    "an archive": ("archive/_manifest.json", with_manifest, lambda path: read_manifest(path.parent)),
}


@pytest.mark.parametrize(("pattern", "of_version", "read"), FILES.values(), ids=FILES)
def test_file_of_another_version_is_refused_and_stays_unchanged(
    golden: Path, pattern: str, of_version: Rewrite, read: Callable[[Path], object]
) -> None:
    path = max(golden.glob(pattern))
    before = path.read_bytes()
    for version in OTHERS:
        path.write_bytes(before)
        content = rewritten(path, of_version, version)
        problem = error_of(read, path)
        assert problem.code == "unsupported_version"
        assert re.search(rf"version {version}\b.* version 1$", problem.text), problem.text
        assert "left as it" in problem.hint
        assert path.read_bytes() == content


def test_index_of_another_version_is_rebuilt(golden: Path) -> None:
    """An index is derived."""
    folder = golden / LEDGER_FOLDER
    before = {path: path.read_bytes() for path in sorted(folder.glob("*.idx"))}
    values = [one.value for one in _records(folder)]
    for version in OTHERS:
        for path, content in before.items():
            path.write_bytes(content)
            rewritten(path, with_index, version)
        assert [one.value for one in _records(folder)] == values
        with Log.open(folder, clock=ManualClock(START), others=("topic.json",)) as log:
            assert [one.value for one in log.read()] == values
        assert max(before).read_bytes() == before[max(before)]


def test_broker_serves_a_topic_with_settings_of_another_version_and_removes_no_record(
    golden: Path, start_broker: StartBroker
) -> None:
    """Its limits are unknown, and the file stays unchanged until a client sets new ones."""
    path = golden / LEDGER_FOLDER / topic_file.NAME
    content = rewritten(path, with_line, 2)
    broker = start_broker(directory=golden / "data", **FOREVER)
    with quoth.connect(broker.url) as client:
        info = client.topic("ledger")
        assert "version 2" in info.problem
        assert info.settings["durability"] == "synced"
        assert client.publish("ledger", b"new").durability == "synced"
        assert client.topic("ledger").count == 21
        assert path.read_bytes() == content
        assert client.update_topic("ledger", size_limit=2_048).problem == ""


def test_broker_refuses_a_topic_with_a_segment_of_another_version_and_serves_the_others(
    golden: Path, start_broker: StartBroker
) -> None:
    path = max((golden / LEDGER_FOLDER).glob("*.seg"))
    content = rewritten(path, with_block, 2)
    broker = start_broker(directory=golden / "data", **FOREVER)
    with quoth.connect(broker.url) as client:
        for ask in (lambda: client.publish("ledger", b"new"), lambda: list(client.read("ledger"))):
            with refused("unsupported_version"):
                ask()
        assert client.publish("orders", b"new").count == 1
    assert path.read_bytes() == content


def test_command_has_a_hint_for_a_backup_of_another_version(golden: Path, tmp_path: Path) -> None:
    rewritten(golden / "backup" / manifest.NAME, with_line, 2)
    ended = Command("", [])("restore", str(golden / "backup"), str(tmp_path / "restored"))
    assert ended.status != 0
    assert "unsupported_version" in ended.err
    assert "use the Quoth that wrote it" in ended.err


def test_backup_with_an_unknown_setting_is_refused_and_restores_no_file(golden: Path, tmp_path: Path) -> None:
    path = golden / "backup" / manifest.NAME
    line = path.read_bytes().partition(b"\n")[0].replace(b'"max_age"', b'"max_love"')
    path.write_bytes(checked_line(line))
    ended = Command("", [])("restore", str(golden / "backup"), str(tmp_path / "restored"))
    assert ended.status != 0
    assert "bad_setting: 'max_love' is no setting of a topic" in ended.err
    assert not (tmp_path / "restored" / "topics").exists()


def test_unknown_key_in_a_settings_file_is_ignored(golden: Path) -> None:
    """A later version may add a key beside the settings that this one can do without."""
    data = (golden / LEDGER_FOLDER / topic_file.NAME).read_bytes()
    content = {**json.loads(data.partition(b"\n")[0]), "later": [1]}
    assert topic_file.decode(checked_line(json.dumps(content).encode())) == topic_file.decode(data)


def _records(folder: Path) -> Iterator[Record]:
    for one in verify.records(folder):
        assert isinstance(one, Record)
        yield one
