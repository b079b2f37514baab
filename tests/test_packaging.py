"""The built packages have the licence, metadata, pages and links that work."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
from email.message import Message
from pathlib import Path
from typing import NamedTuple

import pytest

from quothcli.commands.about.pages import FILES

ROOT = Path(__file__).parents[1]
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
    assert f"\n## {metadata['Version']}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_sdist_has_the_changes_and_the_documents(built: Built) -> None:
    for name in ("CHANGELOG.md", "README.md", *FILES.values()):
        assert (built.sdist / name).read_text("utf-8") == (ROOT / name).read_text("utf-8")


def test_installed_command_has_its_pages_without_a_checkout(built: Built, tmp_path: Path) -> None:
    code = "from quothcli.commands.about import pages; "
    code += f"print(pages.__file__, *map(pages.page, {list(FILES)}), sep='')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(built.wheel)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = [(ROOT / path).read_text("utf-8") for path in FILES.values()]
    assert done.stdout == "".join([str(built.wheel / "quothcli/commands/about/pages.py"), *pages, "\n"])


def test_links_work_on_an_index() -> None:
    """A link is absolute or leads to a heading: an index has no other files."""
    for name in ("README.md", "CHANGELOG.md"):
        text = (ROOT / name).read_text("utf-8")
        links = re.findall(r"\]\(([^)\s]+)|^\[[^\]]+\]:\s*(\S+)|(?:src|href)=\"([^\"]+)", text, re.MULTILINE)
        found = ["".join(one) for one in links]
        assert [link for link in found if not link.startswith(("https://", "#"))] == [], name
