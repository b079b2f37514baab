"""The doubles clean up after themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.deadlines import DEADLINE_S, eventually

STARTING = """
import sys
from pathlib import Path
from kit.broker.brokers import BrokerProcess

broker = BrokerProcess(Path(sys.argv[1])).start()
if sys.argv[2] == "frozen":
    broker.freeze()
print(broker.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="this system lets orphans live")
@pytest.mark.parametrize("state", ["running", "frozen"])
def test_no_broker_outlives_a_test_process_that_is_killed(tmp_path: Path, state: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", STARTING, str(tmp_path), state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as starting:
        assert starting.stdout is not None
        broker = int(starting.stdout.readline())
        assert is_running(broker)
        starting.kill()
        starting.wait(DEADLINE_S)
    eventually(lambda: not is_running(broker), "it is gone")


def is_running(pid: int) -> bool:
    """Is there such a process, and not only what nobody has asked about since it ended?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
