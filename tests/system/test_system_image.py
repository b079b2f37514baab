"""The image that tools/image/Containerfile makes, on a Debian of debootstrap instead of one of a registry.

buildah makes it, which needs no engine. It runs as the image says, as process 1 of its own namespaces: by
`unshare` and `chroot`, because a sandbox in which the tests run may not let a runtime set limits.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.machine.machines import PROJECT, Base, needs_machine

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(900),
    needs_machine,
    pytest.mark.skipif(
        shutil.which("buildah") is None, reason="there is no buildah: apt-get install buildah"
    ),
]
STOP_S = 30.0
RUN = """
mount --bind "$2" "$1$3"
mount -t proc proc "$1/proc"
ip link set lo up
root="$1" user="$4" folder="$5"
shift 5
exec setpriv --pdeathsig KILL chroot --userspec="$user:$user" "$root" env -i --chdir="$folder" "$@"
"""


class Image:
    """An image, and its files. folder: where buildah keeps it."""

    def __init__(self, base: Base, package: Path, folder: Path) -> None:
        self._folder = folder
        debian, context = folder / "debian", folder / "context"
        apt = "var/cache/apt/archives/partial"  # which is left out of the base
        (debian / apt).mkdir(parents=True)
        context.mkdir()
        shutil.copy(package, context)
        subprocess.run(
            ["tar", "-cf", debian / "root.tar", "-C", base.root, ".", "-C", debian, apt], check=True
        )
        (debian / "Containerfile").write_text("FROM scratch\nADD root.tar /\n")
        self._buildah("build", "--layers=false", "--isolation=chroot", "--tag=debian", str(debian))
        self._buildah(
            "build", "--isolation=chroot", "--format=docker", "--build-arg=BASE=localhost/debian",
            f"--file={PROJECT / 'tools/image/Containerfile'}", "--tag=quoth", str(context),
        )  # fmt: skip
        inspected = json.loads(self._buildah("inspect", "--type=image", "localhost/quoth"))
        self.config: Mapping[str, Any] = inspected["Docker"]["config"]
        self._buildah("from", "--name=quoth", "localhost/quoth")
        self.root = self._buildah("mount", "quoth").strip()

    def _buildah(self, command: str, *arguments: str) -> str:
        store = f"--root={self._folder / 'store'}", f"--runroot={self._folder / 'run'}"
        done = subprocess.run(
            ["buildah", *store, "--storage-driver=overlay", command, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def running(self, volume: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the entry point with a folder as its volume, until the end of the context."""
        config = self.config
        (mounted,) = config["Volumes"]
        command = [
            "unshare", "--mount", "--pid", "--net", "--fork", "--kill-child",
            "sh", "-ec", RUN, "sh", self.root, volume, mounted, config["User"], config["WorkingDir"],
            *config["Env"], *config["Entrypoint"], *arguments,
        ]  # fmt: skip
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()

    def close(self) -> None:
        """Unmount its files and remove them."""
        self._buildah("rm", "--all")
        self._buildah("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def image(base: Base, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    image = Image(base, package, tmp_path_factory.mktemp("image"))
    yield image
    image.close()


def init_of(process: subprocess.Popen[bytes]) -> int:
    """Return the process that unshare has started, which is 1 in its namespace."""
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


def test_image_serves_as_a_user_without_rights_and_stops_at_sigterm(image: Image, tmp_path: Path) -> None:
    """Its volume has the records of the broker before. The health check asks as the image says."""
    config = image.config
    assert config["User"] not in ("", "0", "root")
    assert config["StopSignal"] == "SIGTERM"
    shutil.chown(tmp_path, int(config["User"]))
    for turn in range(2):
        with image.running(tmp_path) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if b"quothd: ready" in line:
                    break
            else:
                pytest.fail("it does not start")
            init = init_of(process)
            assert f"NSpid:\t{init}\t1\n" in Path(f"/proc/{init}/status").read_text()
            assert Path(f"/proc/{init}").stat().st_uid == int(config["User"])
            inside = ["nsenter", "--target", str(init), "--mount", "--net", "chroot", image.root]
            _, *check = config["Healthcheck"]["Test"]
            for command in (check, ["quoth", "pub", "turns", str(turn)]):
                subprocess.run([*inside, *command], check=True, capture_output=True, timeout=60)
            read = [*inside, "quoth", "read", "turns", "--format", "raw"]
            read_out = subprocess.run(read, check=True, capture_output=True, timeout=60).stdout
            assert read_out.split() == [b"%d" % row for row in range(turn + 1)]
            subprocess.run(["kill", f"-{signal.SIGTERM.value}", str(init)], check=True)
            assert process.wait(STOP_S) == 0
