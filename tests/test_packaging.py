"""The built packages have the licence, metadata, pages and links that work."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from build_native import is_current
from quothcli.commands.about.pages import FILES

ROOT = Path(__file__).parents[1]
NATIVE = [
    path.parent
    for room in ("broker", "client/python")
    for path in (ROOT / room).glob("*/_native/__init__.py")
]
"""The packages with compiled modules."""
LICENSE = (ROOT / "LICENSE").read_text("utf-8")


class Built(NamedTuple):
    """The unpacked packages."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build a wheel and an sdist from this tree."""
    at = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(at)],
        cwd=ROOT, capture_output=True, timeout=110, check=True,
    )  # fmt: skip
    (wheel,) = at.glob("*.whl")
    shutil.unpack_archive(wheel, at / "wheel", "zip")
    (sdist,) = at.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(at / "sdist", filter="data")
    (unpacked,) = (at / "sdist").iterdir()
    return Built(at / "wheel", unpacked)


@pytest.fixture
def metadata(built: Built) -> Message:
    """Return the metadata that an index and an installer read."""
    (file,) = built.wheel.glob("*.dist-info/METADATA")
    return email.message_from_string(file.read_text("utf-8"))


def test_wheel_and_sdist_have_the_licence(built: Built, metadata: Message) -> None:
    assert "Apache License\n                           Version 2.0, January 2004" in LICENSE
    (in_wheel,) = built.wheel.glob("*.dist-info/licenses/LICENSE")
    assert in_wheel.read_text("utf-8") == (built.sdist / "LICENSE").read_text("utf-8") == LICENSE
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")


def test_metadata_describe_the_project_and_the_changes_name_its_version(metadata: Message) -> None:
    assert metadata["Author"]
    assert "zeromq" in metadata["Keywords"].split(",")
    classifiers = metadata.get_all("Classifier") or []
    for minor in (11, 12, 13, 14):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers
    assert "Typing :: Typed" in classifiers
    assert metadata.get_all("Project-URL") is None, "the project has no public address"
    assert f"\n## {metadata['Version'].partition('.dev')[0]}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_sdist_has_the_changes_and_the_documents(built: Built) -> None:
    for name in ("CHANGELOG.md", "README.md", *FILES.values()):
        assert (built.sdist / name).read_text("utf-8") == (ROOT / name).read_text("utf-8")


def test_installed_command_has_its_pages_and_units_without_a_checkout(built: Built, tmp_path: Path) -> None:
    code = "from quothcli.application import run; from quothcli.commands.about import pages; "
    code += f"print(pages.__file__, *map(pages.page, {list(FILES)}), sep='', flush=True); "
    code += "run(['service', 'install', '--prefix', 'root', '--format', 'raw'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(built.wheel)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = [(ROOT / path).read_text("utf-8") for path in FILES.values()]
    assert done.stdout.startswith(
        "".join([str(built.wheel / "quothcli/commands/about/pages.py"), *pages, "\n"])
    )
    for unit in ("quothd.service", "user/quothd.service"):
        shipped = (built.wheel / "quothcli" / "systemd" / unit).read_text("utf-8")
        assert shipped == (ROOT / "systemd" / unit).read_text("utf-8")
    assert "ExecStart=" in (tmp_path / "root/etc/systemd/system/quothd.service").read_text("utf-8")


def test_wheel_has_compiled_modules_without_their_sources(built: Built) -> None:
    """The same commit gives the same bytes: nothing has the path at which it was built."""
    assert [path for path in built.wheel.rglob("*") if path.suffix in {".c", ".h", ".pxd", ".pyx"}] == []
    if find_spec("quothwire._native.batch") is None:
        pytest.skip("nothing could be compiled here")
    for source in NATIVE:
        folder = built.wheel / source.relative_to(source.parents[1])
        compiled = {path.name.partition(".")[0]: path for path in folder.glob("*.so")}
        assert set(compiled) == {path.stem for path in source.glob("*.pyi")}
        assert [path for path in compiled.values() if str(ROOT).encode() in path.read_bytes()] == []


def test_a_module_is_compiled_again_after_a_change_of_its_sources(tmp_path: Path) -> None:
    pytest.importorskip("quothwire._native.batch")
    source = tmp_path / "batch.pyx"
    source.touch()
    module = SimpleNamespace(name="quothwire._native.batch", sources=[str(source)], depends=[])
    assert not is_current(module), "the source is newer"
    os.utime(source, (0, 0))
    assert is_current(module)
    module.name = "quothwire._native.another"
    assert not is_current(module), "there is none"


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is for Linux")
def test_compiled_modules_need_only_an_old_libc(built: Built, tmp_path: Path) -> None:
    (wheel,) = built.wheel.parent.glob("*.whl")
    if "none-any" in wheel.name:
        pytest.skip("nothing could be compiled here")
    subprocess.run(
        [sys.executable, "-m", "auditwheel", "repair", "-w", str(tmp_path), str(wheel)],
        capture_output=True, timeout=60, check=True,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    (repaired,) = tmp_path.iterdir()
    assert int(re.findall(r"manylinux_2_(\d+)", repaired.name)[0]) <= 17, repaired.name
    with zipfile.ZipFile(repaired) as archive:
        assert [name for name in archive.namelist() if ".libs/" in name] == []


def test_wheel_has_the_program_that_runs_poe(built: Built) -> None:
    name = "quothbench/peers/poe.escript"
    assert (built.wheel / name).read_bytes() == (ROOT / "tools" / name).read_bytes()


def test_sdist_has_all_that_is_compiled(built: Built) -> None:
    for folder in (ROOT / "client/c/src", *NATIVE):
        sources = [path for path in folder.rglob("*") if path.suffix in {".c", ".h", ".pxd", ".pyx"}]
        assert sources, folder
        for source in sources:
            assert (built.sdist / source.relative_to(ROOT)).read_bytes() == source.read_bytes()


def test_sdist_without_a_compiler_becomes_pure_python_and_says_so(built: Built, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=built.sdist, capture_output=True, text=True, timeout=110, check=True,
        env={**os.environ, "CC": "/nowhere/cc", "QUOTH_BUILD_NATIVE": ""},
    )  # fmt: skip
    assert (
        "Quoth becomes pure Python, which is slower: command '/nowhere/cc' failed"
        in done.stderr + done.stdout
    )
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")


def test_links_work_on_an_index() -> None:
    """A link is absolute or leads to a heading: an index has no other files."""
    for name in ("README.md", "CHANGELOG.md"):
        text = (ROOT / name).read_text("utf-8")
        links = re.findall(r"\]\(([^)\s]+)|^\[[^\]]+\]:\s*(\S+)|(?:src|href)=\"([^\"]+)", text, re.MULTILINE)
        found = ["".join(one) for one in links]
        assert [link for link in found if not link.startswith(("https://", "#"))] == [], name
