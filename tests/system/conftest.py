"""A machine for all tests of this folder, with the service installed as the README says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.machine.machines import Base, Machine, Unbootable
from kit.machine.services import Service, readme_lines
from kit.releases.packages import FORMER, Packages, build, build_release

PRIVATE = "/usr/lib/quoth/bin/python3"
"""The interpreter of the package."""


@pytest.fixture(scope="session")
def base() -> Base:
    """The folder from which machines are made."""
    try:
        return Base()
    except Unbootable as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def package(base: Base, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package of this tree."""
    return build(base, tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def packages(base: Base, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Build the package of the first release, too."""
    (web,) = package.parent.glob("quoth-web_*.deb")
    return Packages(build_release(FORMER, base, tmp_path_factory.mktemp("former")), package, web)


@pytest.fixture(scope="session")
def debian(base: Base, packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Debian with the files of the packages in /root, where the other tests have installed nothing."""
    try:
        machine = Machine(base, tmp_path_factory.mktemp("packaged"))
    except Unbootable as problem:
        pytest.skip(str(problem))
    for name, path in packages._asdict().items():
        machine.copy(path, f"/root/{name}.deb")
    yield Service(machine, PRIVATE)
    machine.close()


@pytest.fixture(scope="session")
def machine(base: Base, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A Debian that has booted."""
    try:
        machine = Machine(base, tmp_path_factory.mktemp("machine"))
    except Unbootable as problem:
        pytest.skip(str(problem))
    yield machine
    machine.close()


@pytest.fixture(scope="session")
def installed(base: Base, machine: Machine) -> Service:
    """The service, installed by the first lines of the README, up to its start. A test may restart it."""
    service = Service(machine)
    for line in readme_lines():
        service.run(line)
        if "pip install" in line:  # the service cannot store the compiled modules
            service.run("/opt/quoth/bin/python -c 'import quothd.main'")
            base.keep(machine.directory / "upper" / "opt")
        if line.startswith("systemctl enable"):
            return service
    raise AssertionError("the README does not say how it is started")


@pytest.fixture
def service(installed: Service) -> Service:
    """The running service with the files that were installed."""
    if installed.is_stale:
        assert installed.restart().status == 0
    return installed
