"""Later effects of failed calls to the file system: on the next request, and after the next start."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kit.broker.brokers import StartBroker
from kit.broker.peers import Peers
from kit.broker.scenarios import PATIENT, STEPS, TIRED, Stage
from kit.deadlines import eventually
from kit.machine.limits import descriptors_left, needs_prlimit
from kit.machine.tracing import Fault, Tracer, needs_strace, traced


@needs_strace
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault("fsync", 1, "error=ENOSPC"), "storage_failed"),
        (Fault("fsync", 1, "error=EIO"), "storage_failed"),
        (Fault("openat", 2, "error=EMFILE"), "busy"),
    ],
)
def test_topic_whose_deletion_failed_is_whole_after_the_next_start(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, fault: Fault, code: str
) -> None:
    broker = start_broker(**PATIENT, disk_free_min=0)
    stage = Stage(broker, peers, tmp_path / "trace")
    life = stage.prepare(STEPS["delete"])
    with Tracer(broker.pid, stage.output, fault):
        assert life.delete() == code
    assert life.publish(durability="synced") == ("" if code == "busy" else code)
    stage.leave()
    broker.kill()
    broker.restart()
    stage.meet()


@needs_strace
def test_topic_whose_opening_failed_can_be_opened_again(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    """The opening fails at its end, with the log open and its lock taken."""
    broker = start_broker(**TIRED)
    stage = Stage(broker, peers, tmp_path / "trace")
    life = stage.prepare(STEPS["trim"])
    life.sleep()
    with Tracer(broker.pid, stage.output, Fault("openat", 9, "error=EMFILE")) as tracer:
        assert life.read() == "busy"
    assert [call.path for call in tracer.calls if call.struck]
    assert life.read() == ""


@needs_strace
@pytest.mark.parametrize("problem", ["EIO", "ENOSPC"])
def test_failed_fsync_of_an_opening_fails_the_topic_until_the_next_start(
    start_broker: StartBroker, peers: Peers, tmp_path: Path, problem: str
) -> None:
    """A second fsync would succeed without having written the pages."""
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")
    life = stage.prepare(STEPS["written publish"])
    segment = str(life.segments[-1])
    stage.leave()
    broker.kill()
    broker.prefix = traced(stage.output, Fault("fdatasync", 1, f"error={problem}", segment))
    broker.restart()
    stage.meet_again()
    broker.wait_for("event=topic_failed topic=t1")
    detach_tracer(broker.pid)
    assert [life.publish(durability="synced") for _ in range(3)] == ["storage_failed"] * 3
    broker.prefix = ()
    stage.leave()
    broker.kill()
    broker.restart()
    stage.meet()


@needs_prlimit
def test_topic_goes_on_after_a_roll_without_descriptors(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    broker = start_broker(**PATIENT)
    stage = Stage(broker, peers, tmp_path / "trace")
    codes = set()
    for left in range(4):
        life = stage.prepare(STEPS["roll"])
        with descriptors_left(broker.pid, left):
            codes.add(life.roll())
            life.publish()
        assert life.publish() == "", f"{left} descriptors were left"
    assert codes == {"busy", ""}


def detach_tracer(pid: int) -> None:
    """End the tracer of a process, and the faults with it."""
    status = Path(f"/proc/{pid}/status")
    tracer = int(status.read_text().partition("TracerPid:")[2].split()[0])
    os.kill(tracer, signal.SIGKILL)
    eventually(lambda: "TracerPid:\t0" in status.read_text(), "the tracer is detached")
