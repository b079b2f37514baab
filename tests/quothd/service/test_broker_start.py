"""Starting: what is wrong is told with the right exit status and nothing is left behind; what lies around in
a data directory does no harm."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from xxhash import xxh3_64_hexdigest

from kit.broker.brokers import BrokerProcess, StartBroker, free_port
from kit.broker.peers import FastPeer, Peers, refused
from kit.deadlines import eventually
from kit.machine.processes import listing
from quothlog import Log
from quothlog.datadir import topic_file
from quothlog.file_format import LOCK_NAME
from quothwire.errors import QuothError
from quothwire.protocol.messages import ListTopics, Ping, UpdateTopic
from quothwire.settings import TopicSettings

WRONG, CANNOT = 2, 3
"""Exit statuses: the configuration is wrong; it is right, but the broker cannot start."""

Refuse = Callable[..., str]


@pytest.fixture
def refuse(tmp_path: Path) -> Refuse:
    """Start a broker that must not start: returns what it says; its exit status is checked."""

    def attempt(status: int, *arguments: str, directory: Path | None = None, **settings: object) -> str:
        broker = BrokerProcess(directory or tmp_path / "data", *arguments, **settings)  # type: ignore[arg-type]
        try:
            broker.launch()
            assert broker.wait() == status, broker.stderr
            assert not broker.complaints, broker.stderr
            return broker.stderr
        finally:
            broker.close()

    return attempt


def names(fast: FastPeer) -> list[str]:
    """The names of all topics."""
    found: list[str] = fast.call(ListTopics()).names
    return found


# -- what a publish will need -------------------------------------------------------------------------------

BOOT_ID = "/proc/sys/kernel/random/boot_id"
WITHOUT_BOOT_ID = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc/sys && exec "$@"', "sh")
"""Like ProcSubset=pid in a unit, which hides the same."""


def may_mount() -> bool:
    """May this user mount something in a namespace of its own?"""
    return shutil.which("unshare") is not None and subprocess.run([*WITHOUT_BOOT_ID, "true"]).returncode == 0


needs_mounts = pytest.mark.skipif(not may_mount(), reason="this user may mount nothing")


@needs_mounts
def test_a_broker_that_cannot_know_its_boot_ends_before_it_is_ready(refuse: Refuse, tmp_path: Path) -> None:
    """Each publish would fail, of a broker that answers."""
    said = refuse(CANNOT, prefix=WITHOUT_BOOT_ID)
    assert f"unusable_system: {BOOT_ID}: No such file or directory" in said
    assert "ProcSubset=all" in said, "what to do"
    assert not (tmp_path / "data").exists()


@needs_mounts
@pytest.mark.parametrize(
    "code",
    [
        "from quothd import Broker; Broker(sys.argv[1]).start()",
        "from quothlog import Log; Log.open(sys.argv[1])",
    ],
    ids=["broker", "log"],
)
def test_a_program_that_embeds_one_gets_the_same_error(tmp_path: Path, code: str) -> None:
    done = subprocess.run(
        [*WITHOUT_BOOT_ID, sys.executable, "-c", f"import sys; {code}", str(tmp_path / "data")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert f"BrokerFailure: unusable_system: {BOOT_ID}: No such file" in done.stderr
    assert not (tmp_path / "data").exists()


@needs_mounts
def test_a_log_is_verified_where_the_boot_cannot_be_known(tmp_path: Path) -> None:
    """Only what writes needs it. A cut batch at the end is what a crash leaves, of whatever boot."""
    with Log.open(tmp_path / "log") as log:
        log.append([b"x" * 100] * 10)
    (path,) = (tmp_path / "log").glob("*.seg")
    path.with_suffix(".idx").unlink()
    with path.open("ab") as file:
        file.write(path.read_bytes()[-200:])
    done = subprocess.run(
        [*WITHOUT_BOOT_ID, Path(sys.executable).with_name("quoth"), "log", "verify", tmp_path / "log"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, "unusable_system" in done.stderr) == (0, False), done.stderr
    assert "10" in done.stdout


@needs_mounts
def test_a_directory_that_takes_no_files_is_reported_before_it_is_ready(
    refuse: Refuse, tmp_path: Path
) -> None:
    """Though it can be locked and listed."""
    topics = tmp_path / "data" / "topics"
    topics.mkdir(parents=True)
    spoil = f'mount --bind "{topics}" "{topics}" && mount -o remount,bind,ro "{topics}" && exec "$@"'
    said = refuse(CANNOT, prefix=("unshare", "--mount", "sh", "-c", spoil, "sh"))
    assert f"storage_failed: {topics}/" in said
    assert "Read-only file system" in said
    assert "mounted read-only" in said, "what to do"


@needs_mounts
def test_a_full_disk_keeps_no_broker_from_starting(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    """What is there can be read; to write fails for now."""
    directory = tmp_path / "data"
    directory.mkdir()
    full = 'mount -t tmpfs -o size=16k none "$0" && head -c 16k /dev/zero > "$0/filler"; exec "$@"'
    broker = start_broker(prefix=("unshare", "--mount", "sh", "-c", full, str(directory)))
    with refused("disk_low"):
        peers.fast(broker).publish("t", [b"x"])


# -- configuration --------------------------------------------------------------------------------------


def test_an_unknown_key_in_the_file_gets_a_suggestion(refuse: Refuse, tmp_path: Path) -> None:
    file = tmp_path / "quoth.toml"
    file.write_text("count_interval = 5\n")
    said = refuse(WRONG, "--config", str(file))
    assert f"{file}:1: there is no key 'count_interval'" in said
    file.write_text("worker_timout = 5\n")
    assert "did you mean worker_timeout?" in refuse(WRONG, "--config", str(file))


@pytest.mark.parametrize("option", ["--worker-timout", "--prot"])
def test_an_unknown_option_gets_a_suggestion(refuse: Refuse, option: str) -> None:
    said = refuse(WRONG, option, "5")
    assert "did you mean" in said
    assert option in said


@pytest.mark.parametrize(
    ("key", "value"), [("port", "70000"), ("durability", "maybe"), ("listen", "udp://a:1")]
)
def test_a_wrong_value_is_told(refuse: Refuse, key: str, value: str) -> None:
    """With the key and the value; the table of them is in the tests of `quothd.config.config`."""
    said = refuse(WRONG, **{key: value})
    assert key in said
    assert value in said


def test_a_file_that_is_not_there_is_told(refuse: Refuse, tmp_path: Path) -> None:
    file = tmp_path / "missing.toml"
    assert f"{file}" in refuse(WRONG, "--config", str(file))


@pytest.mark.parametrize("where", [{"host": "0.0.0.0"}, {"host": "::"}, {"listen": "tcp://192.0.2.1:5555"}])
def test_an_address_that_others_reach_is_refused(refuse: Refuse, where: dict[str, str]) -> None:
    """Unless it is said that this is what is wanted."""
    assert "--insecure" in refuse(WRONG, **where)


def test_an_address_that_others_reach_can_be_asked_for(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(host="0.0.0.0", insecure=True)
    port = broker.url.rpartition(":")[2]
    peers.fast(f"tcp://127.0.0.1:{port}").publish("t", [b"x"])


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3"])
def test_loopback_needs_no_permission(start_broker: StartBroker, peers: Peers, host: str) -> None:
    peers.fast(start_broker(host=host)).publish("t", [b"x"])


def test_a_broker_may_listen_at_several_places(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    """Each of them serves the same topics."""
    path = tmp_path / "socket"
    broker = start_broker(listen=f"ipc://{path},tcp://127.0.0.1:0")
    urls = broker.wait_for("quothd: on ").removeprefix("quothd: on ").split()
    assert len(urls) == 3
    for row, url in enumerate(urls):
        fast = peers.fast(url)
        fast.publish("t", [b"%d" % row])
        assert len(fast.read_all("t")) == row + 1
    assert broker.terminate() == 0


def test_the_keys_of_a_file_are_used(start_broker: StartBroker, peers: Peers, tmp_path: Path) -> None:
    file = tmp_path / "quoth.toml"
    file.write_text("auto_create = false\nmax_age = 5\nlisten = []\n")
    broker = start_broker("--config", str(file))
    with refused("unknown_topic"):
        peers.fast(broker).publish("t", [b"x"])


# -- the directory --------------------------------------------------------------------------------------


def test_a_directory_has_one_owner(refuse: Refuse, start_broker: StartBroker, peers: Peers) -> None:
    """The second is told who the first one is, and the first goes on."""
    broker = start_broker()
    said = refuse(CANNOT, directory=broker.directory)
    assert "locked" in said
    assert f"process {broker.pid}" in said
    peers.fast(broker).publish("t", [b"x"])
    assert (broker.directory / LOCK_NAME).read_text().strip() == str(broker.pid)
    (broker.directory / LOCK_NAME).unlink()
    assert "locked" in refuse(CANNOT, directory=broker.directory), "a second one would give out its pointers"


def test_a_lock_file_that_is_a_link_is_not_followed(refuse: Refuse, tmp_path: Path) -> None:
    target, directory = tmp_path / "precious", tmp_path / "data"
    target.write_text("of somebody else")
    directory.mkdir()
    (directory / LOCK_NAME).symlink_to(target)
    assert "symbolic link" in refuse(CANNOT, directory=directory)
    assert target.read_text() == "of somebody else"


def test_a_start_does_not_wait_for_a_pipe_in_place_of_the_folder_that_it_tries_out(
    refuse: Refuse, tmp_path: Path
) -> None:
    folder = tmp_path / "data" / "topics" / ".new~ffffffffffffffff"
    folder.parent.mkdir(parents=True)
    os.mkfifo(folder)
    assert str(folder) in refuse(CANNOT, directory=tmp_path / "data")


def test_a_data_directory_may_be_a_link_and_a_start_does_not_wait_for_settings_that_are_no_file(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    (tmp_path / "another disk").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "another disk")
    broker = start_broker(directory=tmp_path / "linked")
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    fast.close()
    assert broker.terminate() == 0
    (folder,) = (tmp_path / "another disk" / "topics").iterdir()
    (folder / topic_file.NAME).unlink()
    os.mkfifo(folder / topic_file.NAME)
    fast = peers.fast(broker.restart())
    assert "cannot be read" in fast.describe("t").problem
    assert fast.values("t") == [b"x"]


def test_a_link_in_place_of_a_segment_stops_its_topic_and_no_other(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    """The topic goes on with the next ordinal once the file is back."""
    broker = start_broker()
    fast = peers.fast(broker)
    for name in ("t", "u"):
        fast.publish(name, [b"x"])
    fast.close()
    assert broker.terminate() == 0
    (path,) = broker.topics_directory.glob("t~*/*.seg")
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    fast = peers.fast(broker.restart())
    fast.publish("u", [b"y"])
    with pytest.raises(QuothError, match=r"storage_failed: .*a symbolic link stands where a file has to be"):
        fast.publish("t", [b"y"])
    fast.close()
    assert broker.terminate() == 0
    (tmp_path / "moved").replace(path)
    fast = peers.fast(broker.restart())
    fast.publish("t", [b"z"])
    assert fast.values("t") == [b"x", b"z"]


def test_a_directory_is_free_again_at_once(start_broker: StartBroker, peers: Peers) -> None:
    """After a crash as after a stop, for another process on another port."""
    first = start_broker()
    peers.fast(first).publish("t", [b"1"])
    first.kill()
    second = start_broker()
    peers.fast(second).publish("t", [b"2"])
    assert second.terminate() == 0
    third = start_broker()
    assert peers.fast(third).values("t") == [b"1", b"2"]


def test_a_port_has_one_owner(refuse: Refuse, start_broker: StartBroker, tmp_path: Path) -> None:
    """Told as something that may be right later, with the directory free afterwards."""
    broker = start_broker()
    port = int(broker.url.rpartition(":")[2])
    said = refuse(CANNOT, directory=tmp_path / "other", port=port)
    assert f":{port}" in said
    assert "is another broker running there?" in said
    start_broker(directory=tmp_path / "other")


def test_the_port_for_announcements_has_one_owner(refuse: Refuse, tmp_path: Path) -> None:
    port = free_port()  # where nobody else is: the neighbour of a port that the system gives may be taken
    with closing(socket.create_server(("127.0.0.1", port + 1))):
        assert f":{port + 1}" in refuse(CANNOT, port=port)


@pytest.mark.parametrize("place", ["a file", "below a file", "a file as topics"])
def test_a_directory_that_cannot_be_one_is_told(refuse: Refuse, tmp_path: Path, place: str) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    match place:
        case "a file":
            directory = file
        case "below a file":
            directory = file / "data"
        case _:
            directory = tmp_path / "data"
            directory.mkdir()
            (directory / "topics").write_text("x")
    assert str(tmp_path) in refuse(CANNOT, directory=directory)
    assert file.read_text() == "x"


def as_anybody() -> None:
    """Give up what lets root write everywhere, from the next exec on: PR_CAPBSET_DROP of CAP_DAC_OVERRIDE."""
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)


@pytest.mark.skipif(
    os.getuid() == 0 and sys.platform != "linux", reason="root may write everywhere on this system"
)
def test_a_directory_that_is_not_writable_is_told(refuse: Refuse, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    popen = {"preexec_fn": as_anybody} if os.getuid() == 0 else {}
    said = refuse(CANNOT, directory=closed / "data", popen=popen)
    assert "Permission denied" in said
    said = refuse(CANNOT, directory=closed, popen=popen)
    assert "Permission denied" in said
    assert listing(closed) == []


def test_a_new_directory_is_private(start_broker: StartBroker, peers: Peers) -> None:
    """Made with its parents; what is in it is for its owner alone."""
    broker = start_broker(worker_timeout=60)  # so that no file comes and goes meanwhile
    peers.fast(broker).publish("t", [b"x"])
    for path in [broker.directory, *broker.directory.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


# -- what lies around -----------------------------------------------------------------------------------

STRAYS = (".DS_Store", "lost+found/", "notes.txt", "t", "t~", "t~xyz", "~", "t~0123456789ABCDEF", "a~b~c/",
          "t~0123456789abcdef")  # fmt: skip


def test_strays_are_left_alone(start_broker: StartBroker, peers: Peers) -> None:
    """Among the topics, each told once in a warning, none of them a topic, none of them touched."""
    broker = start_broker()
    fast = peers.fast(broker)
    fast.publish("real", [b"x"])
    assert broker.terminate() == 0
    for name in STRAYS:
        path = broker.topics_directory / name
        if name.endswith("/"):
            path.mkdir()
            (path / "inside").write_text("x")
        else:
            path.write_text("x")
    (broker.topics_directory / "link~0123456789abcdee").symlink_to(broker.directory)
    (broker.directory / "stray").write_text("x")
    before = listing(broker.directory)
    fast.close()
    fast = peers.fast(broker.restart())
    assert names(fast) == ["real"]
    assert fast.values("real") == [b"x"]
    for name in (*STRAYS, "link~0123456789abcdee"):
        assert f"file={name.rstrip('/')}" in broker.stderr
    assert broker.terminate() == 0
    assert set(before) <= set(listing(broker.directory))


def test_strays_in_a_topic_are_left_alone(start_broker: StartBroker, peers: Peers) -> None:
    """Told in a warning when the topic is opened; they go with the topic if that is deleted."""
    broker = start_broker()
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    assert broker.terminate() == 0
    (folder,) = broker.topics_directory.iterdir()
    (folder / "core").write_text("x")
    (folder / "backup").mkdir()
    (folder / "backup" / "00000000000000001.seg").write_text("x")
    (folder / "0001.seg").write_text("x")
    (folder / "99999999999999999.seg").write_text("not a segment of 56 bits")
    fast.close()
    fast = peers.fast(broker.restart())
    assert fast.values("t") == [b"x"]
    fast.publish("t", [b"y"])
    for name in ("core", "0001.seg"):
        broker.wait_for(f"topic=t file={name}")
    assert (folder / "core").read_text() == "x"
    assert (folder / "backup").is_dir()


def test_a_topic_half_made_or_half_deleted_is_cleared_away(start_broker: StartBroker, peers: Peers) -> None:
    """A crash in the middle of either leaves no half of a topic."""
    broker = start_broker()
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    fast.publish("gone", [b"x"])
    assert broker.terminate() == 0
    for path in broker.topics_directory.iterdir():
        if path.name.startswith("gone~"):
            path.rename(path.with_name(f".gone~{path.name.rpartition('~')[2]}"))
    half = broker.topics_directory / ".new~00000000000000ff"
    half.mkdir()
    (half / topic_file.NAME).write_text("half")
    fast.close()
    fast = peers.fast(broker.restart())
    assert names(fast) == ["t"]
    assert [path.name.partition("~")[0] for path in broker.topics_directory.iterdir()] == ["t"]


MAX_AGE_S = 0.4

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[:-5],
    "a changed number": lambda whole: whole.replace(b'"max_age": 0.4', b'"max_age": 0.1'),
    "noise": lambda whole: bytes(range(256)),
    "zeros": lambda whole: bytes(len(whole)),
    "a bad name": lambda whole: topic_file.encode(replace(topic_file.decode(whole), name="a/b")),
    "a name that is none": lambda whole: checked(re.sub(rb'"name": "[^"]*"', b'"name": 17', whole)),
    "another version": lambda whole: checked(whole.replace(b'"version": 1', b'"version": 9')),
    "no map": lambda whole: checked(b"[]"),
    "no settings": lambda whole: checked(whole.replace(b'"settings"', b'"setting"')),
    "a setting from the future": lambda whole: checked(whole.replace(b'"max_age"', b'"max_love"')),
    "settings of a wrong type": lambda whole: checked(whole.replace(b"0.4", b'"long"')),
    "an id of a wrong type": lambda whole: checked(re.sub(rb'"log": \d+', b'"log": "x"', whole)),
}


def checked(whole: bytes) -> bytes:
    """A settings file with a right checksum, whatever it says."""
    line = whole.partition(b"\n")[0]
    return line + b"\n" + xxh3_64_hexdigest(line).encode() + b"\n"


def test_damaged_settings_delete_nothing(start_broker: StartBroker, peers: Peers) -> None:
    """The topic is served, its retention is off, the problem is told, and an update repairs it."""
    broker = start_broker(worker_timeout=0.05, check_interval=0.05)
    fast = peers.fast(broker)
    for name in DAMAGES:
        fast.publish(name, [b"x"])
    broker.kill()
    for folder in broker.topics_directory.iterdir():
        file = folder / topic_file.NAME
        topic = topic_file.decode(file.read_bytes())
        whole = topic_file.encode(replace(topic, settings=TopicSettings(max_age=MAX_AGE_S)))
        file.write_bytes(DAMAGES[topic.name](whole))
    fast.close()
    fast = peers.fast(broker.restart())
    assert names(fast) == sorted(DAMAGES)
    pointers = {}
    for name in DAMAGES:
        reply = fast.publish(name, [b"y"])
        assert reply.durability == "synced", "the level that cannot promise too little"
        pointers[name] = reply.first
        info = fast.describe(name)
        assert info.problem, name
        assert info.settings["max_age"] == 0.0
    due = max(pointers.values()) + 1_200_000 * MAX_AGE_S
    eventually(lambda: fast.call(Ping()).time > due, "everything is older than it may have been")
    for name in DAMAGES:
        assert fast.values(name) == [b"x", b"y"]
        info = fast.call(UpdateTopic({"durability": "written", "max_age": 100.0}), name)
        assert (info.problem, info.settings["max_age"]) == ("", 100.0)
    assert broker.terminate() == 0
    fast.close()
    fast = peers.fast(broker.restart())
    for name in DAMAGES:
        assert (fast.describe(name).problem, fast.describe(name).settings["max_age"]) == ("", 100.0)
        assert len(fast.read_all(name)) == 2


def test_missing_settings_delete_nothing(start_broker: StartBroker, peers: Peers) -> None:
    """A folder without its settings file is a topic by its name."""
    broker = start_broker()
    fast = peers.fast(broker)
    name = "größe / nicht".replace("/", "~") + " 😀"
    fast.publish(name, [b"x"])
    broker.kill()
    (folder,) = broker.topics_directory.iterdir()
    (folder / topic_file.NAME).unlink()
    fast.close()
    fast = peers.fast(broker.restart())
    assert names(fast) == [name]
    assert fast.values(name) == [b"x"]
    assert "cannot be read" in fast.describe(name).problem


def test_a_copied_folder_is_another_topic(start_broker: StartBroker, peers: Peers) -> None:
    """Two folders that say the same name are both served, none of them hides the other."""
    originals = ["t", "x" * 200, "€" * 66, "😀" * 50]
    broker = start_broker()
    fast = peers.fast(broker)
    for name in originals:
        fast.publish(name, [name.encode()])
    assert broker.terminate() == 0
    for folder in list(broker.topics_directory.iterdir()):
        copy = folder.with_name(folder.name.rpartition("~")[0] + "~" + "f" * 16)
        shutil.copytree(folder, copy)
    fast.close()
    fast = peers.fast(broker.restart())
    copies = set(names(fast)) - set(originals)
    assert len(copies) == len(originals)
    for name in originals:
        assert fast.values(name) == [name.encode()]
    for name in copies:
        assert "another log" in fast.describe(name).problem
        assert len(fast.read_all(name)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_what_it_serves_and_what_is_promised(start_broker: StartBroker, number: int) -> None:
    """Address, directory, what an acknowledgement is worth; and at the end that all is well."""
    broker = start_broker(durability="synced")
    assert str(broker.directory) in broker.wait_for("serving")
    assert "survives a power cut" in broker.wait_for("acknowledged means")
    other = start_broker(directory=broker.directory.with_name("other"), sync_interval=0.02)
    assert "may take the last 20 milliseconds" in other.wait_for("acknowledged means")
    assert broker.terminate(number) == 0
    assert "unlocked" in broker.stderr
