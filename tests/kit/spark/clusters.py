"""A standalone cluster of Spark: a master and workers, each in a mount namespace of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.deadlines import eventually
from kit.spark.sparks import JAVA_OPTIONS, JOB_S

_HIDE = 'for path; do shift; [ "$path" = -- ] && break; mount -t tmpfs none "$path" || exit; done; exec "$@"'
"""Mount an empty folder over each path in front of --, then become the command behind it."""
_END_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


def _unshare() -> list[str]:
    """The command that gives another one mounts of its own; a user who is not root needs a user namespace."""
    names = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", "--propagation", "private", *names]


def _may_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_unshare(), "true"], capture_output=True).returncode == 0


needs_namespaces = pytest.mark.skipif(not _may_unshare(), reason="this system gives no mount namespaces")


@contextmanager
def standalone(home: Path, directory: Path, hidden: Sequence[Path], workers: int = 2) -> Iterator[str]:
    """A master and workers with one core each, and its URL. Their logs and folders lie in `directory`.

    home: of Spark. hidden: folders that are empty for the workers, as on a host that does not have them.
    """
    variables = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, kind: str, *words: str | Path, prefix: Sequence[str | Path] = ()) -> Path:
        where = directory / name
        where.mkdir(parents=True)
        command = [*_END_WITH_US, *prefix, home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}"]
        with (where / "log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [*map(str, command), "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
                     *map(str, words)],
                    cwd=where, env=variables, stdout=log, stderr=log,
                )
            )  # fmt: skip
        return where / "log"

    try:
        log = start("master", "master.Master")
        url = eventually(lambda: _MASTER.findall(log.read_text()), "a master", JOB_S)[0]
        for number in range(workers):
            name = f"worker-{number}"
            hide = [*_unshare(), "sh", "-c", _HIDE, "sh", *map(str, hidden), "--"]
            own = ("--cores", "1", "--memory", "1g", "--work-dir", directory / name, url)
            start(name, "worker.Worker", *own, prefix=hide)
        eventually(lambda: log.read_text().count("Registering worker") == workers, "its workers", JOB_S)
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(JOB_S)
