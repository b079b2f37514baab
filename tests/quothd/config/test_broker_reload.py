"""A reload changes every live key at once and names the others; a wrong file changes nothing."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker, on_stderr
from kit.broker.peers import Peers, Subscriber, code_of, hibernate, hibernates, refused
from kit.broker.transactions import Job
from kit.deadlines import eventually
from quothd import Broker, Config
from quothd.config.config import KEYS
from quothd.config.sources import load
from quothwire import batch
from quothwire.config.template import toml
from quothwire.errors import Disconnected
from quothwire.protocol.group_messages import DeleteGroup, DescribeGroup, GroupFetch, OpenGroup
from quothwire.protocol.messages import CreateTopic, DeleteTopic, Fetch, Ping

LIVE = [name for name, key in KEYS.items() if key.live]
FIXED = [name for name, key in KEYS.items() if not key.live]
NEVER = 1e9
MIB = 2**20


# -- the daemon -------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The configuration file of the daemon."""
    file = tmp_path / "quoth.toml"
    file.write_text("")
    return file


def reload(broker: BrokerProcess, file: Path, text: str) -> None:
    """Replace the file atomically, and send SIGHUP to the daemon."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.replace(file)
    os.kill(broker.pid, signal.SIGHUP)


ANOTHER: dict[str, object] = {
    "dir": "elsewhere", "host": "::1", "port": 7, "listen": ("ipc:///tmp/quoth-nowhere",), "insecure": True,
    "auto_create": False, "durability": "synced", "log_level": "debug", "log_format": "json",
    "retention": "until_acked", "rules": False, "memory_max": 2**40, "connections_max": 77, "audit": False,
    "ipc_mode": 0o660, "ipc_group": "0", "umask": 0o027, "poe_listen": "tcp://127.0.0.1:7",
}  # fmt: skip


def another(name: str) -> object:
    """A value of a key other than its default."""
    default = KEYS[name].default
    return ANOTHER[name] if name in ANOTHER else default * 2 or type(default)(7)


def test_a_reload_changes_every_live_key_and_reports_the_others(
    start_broker: StartBroker, file: Path
) -> None:
    """All keys change in the file, but for two that are arguments, and those that name files with keys."""
    broker = start_broker("--config", str(file))
    names = [name for name in KEYS if name not in ("dir", "port", "server_key", "clients")]
    reload(broker, file, "".join(f"{name} = {toml(KEYS[name], another(name))}\n" for name in names))
    event = json.loads(broker.wait_for('"event": "restart_needed"'))
    assert event["keys"] == [name for name in names if name in FIXED]
    event = json.loads(broker.wait_for('"event": "reloaded"'))
    assert event["changed"] == [name for name in LIVE if name in names]
    file.write_text("frame_bytes_max = 2_000_000\nmax_age = 60\n")
    assert broker.terminate() == 0
    broker.restart()
    reload(broker, file, "frame_bytes_max = 2_000_000\nmax_age = 70\n")
    broker.wait_for("changed=max_age")
    assert "restart_needed" not in broker.stderr


def test_a_reload_changes_level_and_format_of_the_log(
    start_broker: StartBroker, file: Path, peers: Peers
) -> None:
    broker = start_broker("--config", str(file), worker_timeout=0.05)
    reload(broker, file, 'log_format = "json"\nlog_level = "debug"\n')
    event = json.loads(broker.wait_for('"event": "reloaded"'))
    assert event["changed"] == ["log_level", "log_format"]
    peers.fast(broker).publish("t", [b"x"])
    broker.wait_for('"event": "topic_slept"')
    reload(broker, file, 'log_level = "info"\n')
    broker.wait_for(" event=reloaded ")


WRONG_FILES = [
    ("max_age = 'soon'\nauto_create = false\n", ":1: max_age: 'soon' is not a span of time"),
    ("auto_create = false\n]\n", "is no TOML"),
    (f"auto_create = false\nport = 1{'0' * 5_000}\n", "too long to be read"),
    ("auto_create = false\nhost = '0.0.0.0'\n", "--insecure"),
]


def test_a_wrong_or_missing_file_changes_nothing(start_broker: StartBroker, peers: Peers, file: Path) -> None:
    """Not even its valid lines have an effect. Arguments and environment win over a right one."""
    environment = {"QUOTH_MAX_BYTES": "5"}
    broker = start_broker("--config", str(file), environment=environment, max_age=9, durability="synced")
    fast = peers.fast(broker)
    for number, (text, problem) in enumerate(WRONG_FILES):
        reload(broker, file, text)
        assert "error event=reload_refused" in broker.wait_for(problem)
        fast.publish(f"made{number}", [b"x"])
    file.unlink()
    os.kill(broker.pid, signal.SIGHUP)
    assert "error event=reload_refused" in broker.wait_for("No such file")
    fast.publish("made", [b"x"])
    reload(broker, file, "auto_create = false\nmax_age = 1\nmax_bytes = 1\nwaits_max = 1\n")
    assert broker.wait_for("event=reloaded").endswith("changed=auto_create,waits_max")
    with refused("unknown_topic"):
        fast.publish("other", [b"x"])


def test_a_reload_without_a_file_is_a_warning(start_broker: StartBroker) -> None:
    broker = start_broker()
    os.kill(broker.pid, signal.SIGHUP)
    broker.wait_for("warning event=reload_needless")
    assert broker.terminate() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="a closed terminal is detected on Linux")
def test_a_sighup_ends_a_daemon_whose_terminal_is_closed(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    broker = BrokerProcess(tmp_path / "data", popen={"pass_fds": (theirs,)}, prefix=on_stderr(theirs))
    try:
        broker.launch()
        os.close(theirs)
        output = b""
        while b"quothd: ready" not in output:
            output += os.read(ours, 4_096)
        os.close(ours)
        os.kill(broker.pid, signal.SIGHUP)
        assert broker.wait() == 0
    finally:
        broker.close()


# -- the effect of each key ------------------------------------------------------------------------

BEFORE: dict[str, Any] = {
    "host": "127.0.0.1", "port": 0, "worker_timeout": NEVER, "sync_interval": NEVER, "check_interval": NEVER,
    "unsynced_bytes_max": 2**40, "buffer_count_max": 10**9, "scrub_interval": 0,
}  # fmt: skip


class Reloaded:
    """A broker in this process, whose configuration a test changes."""

    def __init__(self, directory: Path, peers: Peers) -> None:
        self.settings = {**BEFORE, "dir": directory}
        self.broker = Broker(directory, config=load(self.settings, {}))
        self.broker.start()
        self.fast = peers.fast(self.broker)

    def set(self, **settings: Any) -> None:
        self.settings |= settings
        assert self.broker.reload(load(self.settings, {})) == ()

    def counted(self, name: str) -> int:
        return int(self.fast.status(limit=0).counters[name])

    def code(self, topic: str, *values: bytes) -> str:
        """The code of a publish, "" for a reply."""
        return code_of(self.fast.answers_to([self.fast.send_publish(topic, values)])[0])


@pytest.fixture
def reloaded(tmp_path: Path, peers: Peers) -> Iterator[Reloaded]:
    """A broker with an open topic `t`."""
    reloaded = Reloaded(tmp_path / "data", peers)
    reloaded.fast.publish("t", [b"x"])
    yield reloaded
    reloaded.broker.stop()


def _a_new_topic_has(name: str, value: Any) -> Callable[[Reloaded], None]:
    def act(it: Reloaded) -> None:
        old = it.fast.describe("t").settings
        it.set(**{name: value})
        made = it.fast.call(CreateTopic({}), "new")
        assert made.settings[name] == value
        assert it.fast.describe("t").settings == old

    return act


def _refuses(topic: str, value: bytes, code: str, **settings: Any) -> Callable[[Reloaded], None]:
    def act(it: Reloaded) -> None:
        it.set(**settings)
        assert it.code(topic, value) == code

    return act


def _leads_to(condition: Callable[[Reloaded], bool], **settings: Any) -> Callable[[Reloaded], None]:
    def act(it: Reloaded) -> None:
        assert not condition(it)
        it.set(**settings)
        eventually(lambda: condition(it), "it has an effect")

    return act


def _syncs_after(size: int, **settings: Any) -> Callable[[Reloaded], None]:
    def act(it: Reloaded) -> None:
        it.set(**settings)
        it.fast.publish("t", [b"x" * size])
        eventually(lambda: it.counted("syncs") > 0, "the sync thread has run", 8.0)

    return act


def _staged_bytes_max(it: Reloaded) -> None:
    it.set(staged_bytes_max=16 * MIB)
    job = Job(it.fast, "t")
    job.stage(1, 0, [[b"x" * 9 * MIB]])
    with refused("staged_max"):
        job.stage(1, 1, [[b"x" * 9 * MIB]])
    it.set(staged_bytes_max=32 * MIB)
    job.stage(1, 1, [[b"x" * 9 * MIB]])


def _staged_max_age(it: Reloaded) -> None:
    Job(it.fast, "t").stage(1, 0, [[b"x"]])
    it.set(staged_max_age=0.01, check_interval=0.01)
    eventually(lambda: not it.fast.describe("t").counters["staged_bytes"], "it expires")


def _check_interval(it: Reloaded) -> None:
    it.fast.call(CreateTopic({"max_age": 0.05, "count_limit": 1}), "short")
    for _ in range(2):
        it.fast.publish("short", [b"x"])
    it.set(check_interval=0.01)
    eventually(lambda: it.fast.describe("short").count < 2, "retention is done")


def _workers_max(it: Reloaded) -> None:
    it.fast.publish("u", [b"x"])
    assert it.fast.status().active == 2
    it.set(workers_max=1)
    it.fast.publish("v", [b"x"])
    eventually(lambda: it.fast.status().active == 1, "one is active")


def _topics_max(it: Reloaded) -> None:
    it.set(topics_max=1)
    assert [it.code("new", b"x"), it.code("t", b"x")] == ["topics_max", ""]
    it.fast.call(DeleteTopic(), "t")
    assert it.code("new", b"x") == ""


def _store_bytes_max(it: Reloaded) -> None:
    it.fast.publish("t", [b"x"])
    it.set(store_bytes_max=1)
    assert [it.code("new", b"x"), it.code("t", b"x")] == ["quota_exceeded", "quota_exceeded"]
    it.set(store_bytes_max=MIB)
    assert [it.code("new", b"x"), it.code("t", b"x")] == ["", ""]


def _topic_creations_max(it: Reloaded) -> None:
    it.set(topic_creations_max=1)
    assert [it.code("new", b"x"), it.code("t", b"x")] == ["quota_exceeded", ""]
    it.set(topic_creations_max=2)
    assert [it.code("new", b"x"), it.code("newer", b"x")] == ["", "quota_exceeded"]


def _is_busy(it: Reloaded) -> bool:
    asked = [it.fast.send_publish("t", [b"x"]) for _ in range(100)]
    return "busy" in map(code_of, it.fast.answers_to(asked))


def _limits_waits(name: str) -> Callable[[Reloaded], None]:
    def act(it: Reloaded) -> None:
        it.set(**{name: 1})
        end = it.fast.describe("t").last
        asked = [it.fast.send(Fetch(after=end, wait_ms=60_000), "t") for _ in range(2)]
        assert code_of(it.fast.answer_to(asked[1])) == "busy"

    return act


def _is_handed_on(name: str, value: Any) -> Callable[[Reloaded], None]:
    """Checks the configuration of the parts that use a key with no quick effect."""

    def act(it: Reloaded) -> None:
        it.set(**{name: value})
        front_end: Any = it.broker._front_end
        for config in (front_end._dispatcher.config, front_end._processes.scrubber._config):
            assert getattr(config, name) == value

    return act


def _closes_a_subscriber(**settings: int) -> Callable[[Reloaded], None]:
    """Checks that two subscriptions of one connection are too many."""

    def act(it: Reloaded) -> None:
        it.set(**settings)
        front_end: Any = it.broker._front_end
        with Subscriber(it.broker.context, front_end.bound.announced[0], b"one", b"two"):
            eventually(lambda: it.counted("subscribers_closed") > 0, "it is closed")

    return act


def _groups_max(it: Reloaded) -> None:
    it.fast.call(OpenGroup("one"), "t")
    it.set(groups_max=1)
    with refused("groups_max"):
        it.fast.call(OpenGroup("two"), "t")
    it.fast.call(DeleteGroup("one"), "t")
    it.fast.call(OpenGroup("two"), "t")


def _group_pending_max(it: Reloaded) -> None:
    it.fast.publish("t", [b"x"] * 9)
    it.fast.call(OpenGroup("g"), "t")
    it.set(group_pending_max=3)
    for _ in range(2):
        it.fast.call(GroupFetch("g"), "t")
        assert it.fast.call(DescribeGroup("g"), "t").in_flight == 3


def _group_idle(it: Reloaded) -> None:
    it.fast.call(OpenGroup("g"), "t")
    assert it.fast.call(DescribeGroup("g"), "t").problem == ""
    it.set(group_idle=0.001)
    eventually(lambda: "not used" in it.fast.call(DescribeGroup("g"), "t").problem, "it is reported")


def _rules(it: Reloaded) -> None:
    it.fast.publish("quoth.rules", [b"x"])
    eventually(lambda: it.counted("rules_running"), "the process runs")
    it.set(rules=False)
    eventually(lambda: not it.counted("rules_running"), "it is ended")


LARGEST = b"x" * (16 * MIB - len(batch.encode([b""])))
EFFECTS: dict[str, Callable[[Reloaded], None]] = {
    "auto_create": _refuses("new", b"x", "unknown_topic", auto_create=False),
    "durability": _a_new_topic_has("durability", "synced"),
    "max_age": _a_new_topic_has("max_age", 3_600.0),
    "max_bytes": _a_new_topic_has("max_bytes", 10**9),
    "size_limit": _a_new_topic_has("size_limit", 10**6),
    "count_limit": _a_new_topic_has("count_limit", 1_000),
    "age_limit": _a_new_topic_has("age_limit", 60.0),
    "retention": _a_new_topic_has("retention", "until_acked"),
    "sync_interval": _syncs_after(1, sync_interval=0.01),
    "unsynced_bytes_max": _syncs_after(9 * MIB, unsynced_bytes_max=16 * MIB),
    "buffer_count_max": _syncs_after(1, buffer_count_max=1),
    "disk_free_min": _refuses("t", b"x", "disk_low", disk_free_min=2**60),
    "staged_bytes_max": _staged_bytes_max,
    "staged_max_age": _staged_max_age,
    "check_interval": _check_interval,
    "worker_timeout": _leads_to(lambda it: hibernates(it.fast), worker_timeout=0.01),
    "recovering_after": _is_handed_on("recovering_after", 0.5),
    "stop_timeout": _is_handed_on("stop_timeout", 5.0),
    "workers_max": _workers_max,
    "topics_max": _topics_max,
    "topic_requests_max": _leads_to(_is_busy, topic_requests_max=1),
    "requests_max": _leads_to(_is_busy, requests_max=1),
    "store_bytes_max": _store_bytes_max,
    "topic_creations_max": _topic_creations_max,
    "request_bytes_max": _refuses("t", LARGEST, "busy", request_bytes_max=16 * MIB),
    "waits_max": _limits_waits("waits_max"),
    "connection_waits_max": _limits_waits("connection_waits_max"),
    "subscriptions_max": _closes_a_subscriber(subscriptions_max=1),
    "connection_subscriptions_max": _closes_a_subscriber(connection_subscriptions_max=1),
    "groups_max": _groups_max,
    "group_pending_max": _group_pending_max,
    "group_idle": _group_idle,
    "scrub_interval": _leads_to(lambda it: it.counted("scrub_rounds") > 0, scrub_interval=0.01),
    "scrub_rate": _is_handed_on("scrub_rate", 10**9),
    "rules": _rules,
}
"""The effect of every live key, but for those of the daemon's log and the clients file."""


def test_the_table_has_every_live_key() -> None:
    assert set(EFFECTS) == {name for name in LIVE if not name.startswith("log_")} - {"clients"}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_reload_of_a_live_key_has_an_effect(reloaded: Reloaded, name: str) -> None:
    EFFECTS[name](reloaded)
    assert reloaded.fast.call(Ping()).time


def test_a_key_that_needs_a_restart_is_unchanged_and_reported(reloaded: Reloaded) -> None:
    for age, name in enumerate(FIXED, 5):
        before = reloaded.broker.config
        wanted = load({**reloaded.settings, name: another(name), "max_age": age}, {})
        assert reloaded.broker.reload(wanted) == (name,)
        assert reloaded.broker.config.differing(before) == ("max_age",)


def test_a_shorter_age_of_staged_batches_holds_for_hibernating_topics(
    reloaded: Reloaded, caplog: pytest.LogCaptureFixture
) -> None:
    """All parts of a transaction expire together, and the log counts them."""
    job = Job(reloaded.fast, "t")
    for part in range(4):
        job.stage(1, part, [[b"x"], [b"y"], [b"z"]])
    reloaded.set(worker_timeout=0.05)
    hibernate(reloaded.fast)
    assert reloaded.fast.describe("t").counters["staged_bytes"]
    reloaded.set(staged_max_age=0.01)
    eventually(lambda: not reloaded.fast.describe("t").counters["staged_bytes"], "they expire")
    assert "version=1 parts=4 batches=12 records=12" in caplog.text


def test_a_stopped_broker_refuses_a_configuration(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for _ in range(2):
        with pytest.raises(Disconnected) as caught:
            broker.reload(Config(dir=tmp_path))
        assert caught.value.code == "closed"
        with broker:
            pass
