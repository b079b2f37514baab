"""A command loads few modules before its work. Loading decides how long a short command takes.

Times differ from machine to machine, the loaded modules do not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from types import ModuleType

import pytest

import quoth as library
import quothlog
from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S
from kit.machine.commands import COMMAND_S
from quothcli.application import COMMANDS, tree
from quothcli.cli.command import Group
from quothwire.version import VERSION

LOADED = """
import json, sys
from quothcli.application import run
try:
    run(sys.argv[1:])
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
"""Runs one command, then tells the modules that are loaded."""
LOADED_BY_HELPS = """
import json, os, sys
from quothcli.application import run
for line in sys.stdin:
    if (child := os.fork()) == 0:
        sys.stdout = open(os.devnull, "w")
        run([*line.split(), "--help"])
        print(json.dumps([line.strip(), sorted(sys.modules)]), file=sys.stderr, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
"""Asks for the help of each command that is named on stdin, in a process of its own."""

HEAVY = {"asyncio", "concurrent", "email", "http", "logging", "multiprocessing", "pydantic", "rich", "ssl"}
"""Packages that a client's command does not need for its start."""
LIGHT = frozenset(("annotated_doc", "click", "quothcli", "shellingham", "typer"))
_FEW = {
    "quoth": "core core.deadline core.defaults message timestamps",
    "quothwire": "errors pointer protocol settings text topic version",
    "quothwire.protocol": "bounds transaction value",
    "quothwire.text": "paths quantity suggestion variables",
}
FEW = {f"{package}.{name}" for package, names in _FEW.items() for name in names.split()}
"""Modules of ours that the help of a command may load."""
_BATCH = "quothwire.batch quothwire.record msgpack xxhash cython_runtime"
_KEYS = f"quothd.config quothd.config.config quothd.config.sources quothlog.retention {_BATCH}"
MORE = {
    "serve": _KEYS,
    "config": f"{_KEYS} quothd.config.template",
    "service": f"{_KEYS} quothd.config.template",
    "pub": _BATCH,
    "demo": _BATCH,
    "transaction": _BATCH,
    "bench": "quothbench",
}
"""More of them, for the help of keys and limits."""


_ASYNCIO = {"asyncio", "concurrent", "logging", "ssl"}
INSTRUMENTS: dict[str, set[str]] = {
    "bench aio": _ASYNCIO,
    "bench peers": _ASYNCIO,
    "bench steps": {"quothd", "quothlog"},
    "bench memory": {"quothlog"},
}
"""More of them, for the instruments, beside client, codec and several processes."""


def loaded(*typed: str) -> set[str]:
    """Run a command; returns the modules that it has loaded."""
    told = subprocess.run(
        [sys.executable, "-c", LOADED, *typed], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    return set(json.loads(told.stderr.splitlines()[-1]))


def of_others(modules: set[str]) -> set[str]:
    """Choose the packages that are neither ours nor Python's."""
    packages = {name.partition(".")[0] for name in modules}
    return {name for name in packages if name not in sys.stdlib_module_names and not name.startswith("_")}


def test_version_loads_only_the_command_line() -> None:
    modules = loaded("--version")
    assert of_others(modules) <= LIGHT | {"quoth", "quothwire"}
    assert {name for name in modules if name.startswith(("quoth.", "quothwire."))} <= FEW
    assert not {name.partition(".")[0] for name in modules} & HEAVY


def test_version_is_the_installed_one() -> None:
    assert version("quoth") == VERSION


def loaded_by_helps(paths: list[str]) -> dict[str, set[str]]:
    """Return the modules that are loaded for the help of each command."""
    environment = {**os.environ, "COLUMNS": "80"}
    told = subprocess.run(
        [sys.executable, "-c", LOADED_BY_HELPS],
        input="\n".join(paths),
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=True,
        env=environment,
    )
    found = dict(json.loads(line) for line in told.stderr.splitlines())
    assert list(found) == paths
    return {path: set(modules) for path, modules in found.items()}


def test_help_of_a_command_loads_nothing_of_its_work() -> None:
    """No client, no engine, no ZeroMQ; and Python's own large modules neither."""
    # The help of an instrument names its figures, so it is loaded as a whole.
    paths = [" ".join(path) for path in below(tree(), ()) if path[:1] != ("bench",) or len(path) == 1]
    surplus = {path: sorted(unexpected(path, modules)) for path, modules in loaded_by_helps(paths).items()}
    assert {path: names for path, names in surplus.items() if names} == {}


def test_help_of_an_instrument_loads_only_what_it_measures() -> None:
    """The engine where that is measured alone, asyncio where it is compared."""
    paths = [" ".join(path) for path in below(tree(), ()) if path[0] == "bench" and len(path) > 1]
    usual = LIGHT | {"quothbench", "quoth", "quothwire", "zmq", "msgpack", "xxhash", "cython_runtime"}
    surplus = {}
    for path, modules in loaded_by_helps(paths).items():
        heavy = {name.partition(".")[0] for name in modules} & HEAVY - {"multiprocessing"}
        surplus[path] = sorted((of_others(modules) - usual | heavy) - INSTRUMENTS.get(path, set()))
    assert {path: names for path, names in surplus.items() if names} == {}


def unexpected(path: str, modules: set[str]) -> set[str]:
    """Return the modules that a command should not load for its help."""
    more = set(MORE.get(path.partition(" ")[0], "").split())
    more |= {name.partition(".")[0] for name in more}
    ours = {name for name in modules if name.startswith(("quoth.", "quothwire.", "quothd.", "quothlog."))}
    heavy = {name.partition(".")[0] for name in modules} & HEAVY
    packages = of_others(modules) - LIGHT - {"quoth", "quothwire"}
    return (ours - FEW - more) | (packages - more) | heavy


def below(group: Group, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """List the words of each command."""
    paths = []
    for name, command in group.commands.items():
        paths.append((*path, name))
        if isinstance(command, Group):
            paths += below(command, paths[-1])
    return paths


FEW_COMMANDS = {"ping", "status", "topic ls", "count t", "pub t two"}
READERS = {"read t --limit 1", "tail t --after 0 --limit 1"}


@pytest.mark.parametrize("typed", sorted(FEW_COMMANDS | READERS))
def test_request_to_a_broker_loads_only_what_it_needs(broker: BrokerProcess, typed: str) -> None:
    with library.connect(broker.url) as client:
        client.publish("t", b"one")
    modules = loaded(*typed.split(), "--url", broker.url)
    assert "zmq" in modules
    assert not {name.partition(".")[0] for name in modules} & (HEAVY | {"quothd", "quothlog", "hashlib"})
    assert of_others(modules) <= LIGHT | {"quoth", "quothwire", "zmq", "msgpack", "xxhash", "cython_runtime"}
    assert not modules & {
        "quoth.producer",
        "quoth.transaction",
        "quoth.forward.forwarder",
        "quoth.aio",
        "quoth.spark",
    }
    if typed not in READERS:
        assert not modules & {"quoth.merging.multi_reader", "quoth.merging.merge", "quoth.cursor"}


@pytest.mark.parametrize("package", [library, quothlog], ids=lambda package: package.__name__)
def test_every_public_name_is_loaded_on_demand(package: ModuleType) -> None:
    names = package.__all__
    assert dir(package) == sorted(names)
    assert all(getattr(package, name).__name__ == name for name in names)
    with pytest.raises(AttributeError, match="nonsense"):
        getattr(package, "non" + "sense")


def test_every_command_is_in_the_table() -> None:
    assert list(tree().commands) == list(COMMANDS)
