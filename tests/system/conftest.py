"""A machine for all tests of this folder, with the service installed as the README says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.machine.machines import Base, Machine, Unbootable
from kit.machine.services import Service, readme_lines


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A Debian that has booted."""
    try:
        machine = Machine(Base(), tmp_path_factory.mktemp("machine"))
    except Unbootable as problem:
        pytest.skip(str(problem))
    yield machine
    machine.close()


@pytest.fixture(scope="session")
def service(machine: Machine) -> Service:
    """The service, installed by the first lines of the README, up to its start."""
    service = Service(machine)
    for line in readme_lines():
        service.run(line)
        if line.startswith("systemctl enable"):
            return service
    raise AssertionError("the README does not say how it is started")
