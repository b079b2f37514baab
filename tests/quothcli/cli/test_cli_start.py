"""A command loads few modules before its work. Loading decides how long a short command takes.

Times differ from machine to machine, the loaded modules do not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from types import ModuleType

import pytest

import quoth as library
import quothlog
from kit.broker.brokers import BrokerProcess
from kit.machine.commands import COMMAND_S, run_script
from quothcli.application import tree
from quothcli.cli.command import Group
from quothwire import VERSION

LOADED = """
import contextlib, io, json, sys
from quothcli.application import run
known = set()
for line in sys.stdin:
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        run(line.split())
    print(json.dumps(sorted(sys.modules.keys() - known)))
    known = set(sys.modules)
"""
"""Runs the commands that come on stdin; tells the modules that each has loaded, beside those before it."""

HEAVY = {"asyncio", "concurrent", "email", "http", "logging", "multiprocessing", "pydantic", "rich", "ssl"}
"""Packages that a client's command does not need for its start."""
LIGHT = frozenset(("annotated_doc", "click", "quothcli", "shellingham", "typer"))
CLIENT = LIGHT | {"quoth", "quothwire", "zmq", "msgpack", "xxhash", "cython_runtime"}
_FEW = {
    "quoth": "core core.options message timestamps",
    "quothwire": "errors pointer protocol settings text topic",
    "quothwire.protocol": "transaction value",
    "quothwire.text": "paths quantity record_json suggestion variables",
}
FEW = {f"{package}.{name}" for package, names in _FEW.items() for name in names.split()}
"""Modules of ours that the help of a command may load."""
_COMPILED = "quothwire.native quothwire._native quothwire._native.batch cython_runtime"
_BATCH = f"quothwire.batch quothwire.record msgpack xxhash {_COMPILED}"
_SCHEMA = "quothwire.config.arguments quothwire.config.config_key quothwire.config.sources"
_TABLES = "quothd.config.poe_keys quothd.config.security_keys"
_CONFIG = f"{_SCHEMA} quothwire.config quothd.config quothd.config.config {_TABLES}"
_KEYS = f"{_CONFIG} quothd.config.sources quothlog.retention {_BATCH}"
MORE = {
    "pub": _BATCH,
    "demo": _BATCH,
    "transaction": _BATCH,
    "serve": _KEYS,
    "web": f"{_KEYS} quothweb.config quothwire.config.addresses quothwire.config.template",
    "config": f"{_KEYS} quothwire.config.template",
    "service": f"{_KEYS} quothd.config.template quothwire.config.template",
    "key": "quothwire.security quothwire.security.key_file",
    "bench": "quothbench",
    "--version": _COMPILED,
}
"""More of them, for the help of keys and limits."""
_ASYNCIO = {"asyncio", "concurrent", "logging", "ssl"}
INSTRUMENTS: dict[str, set[str]] = {
    "bench api": _ASYNCIO,
    "bench peers": _ASYNCIO,
    "bench embedded": {"quothlog"},
    "bench group": {*_ASYNCIO, "quothlog"},
    "bench http": {*_ASYNCIO, "email", "http"},
    "bench memory": {"quothlog"},
    "bench pages": {"quothlog"},
}
"""More of them, for the instruments, beside client, codec and several processes."""


def loaded(lines: Sequence[str]) -> list[set[str]]:
    """Run commands in one process; returns the modules that each has loaded, beside those before it."""
    result = subprocess.run(
        [sys.executable, "-c", LOADED], input="\n".join(lines), capture_output=True, text=True,
        timeout=COMMAND_S, check=True,
    )  # fmt: skip
    return [set(json.loads(line)) for line in result.stdout.splitlines()]


def packages_of(modules: set[str]) -> set[str]:
    """Return the packages of modules."""
    return {name.partition(".")[0] for name in modules}


def of_others(modules: set[str]) -> set[str]:
    """Choose the packages that are neither ours nor Python's."""
    names = packages_of(modules)
    return {name for name in names if name not in sys.stdlib_module_names and not name.startswith("_")}


def below(group: Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command."""
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, Group):
            yield from below(command, (*path, name))


def rank(path: tuple[str, ...], more: Sequence[str]) -> int:
    """Return a place behind all commands that may load less."""
    return 1 + list(more).index(path[0]) if path[0] in more else 0


def test_help_of_a_command_loads_nothing_of_its_work() -> None:
    """No client, no engine, no ZeroMQ; and Python's own large modules neither."""
    # The help of an instrument names its figures, so it is loaded as a whole.
    all_paths = [path for path in below(tree()) if path[:1] != ("bench",) or len(path) == 1]
    paths = sorted(all_paths, key=lambda path: rank(path, list(MORE)))
    lines = [*(f"{' '.join(path)} --help" for path in paths), "--version"]
    surplus = {
        line: sorted(unexpected(line, modules)) for line, modules in zip(lines, loaded(lines), strict=True)
    }
    assert {line: names for line, names in surplus.items() if names} == {}


def unexpected(line: str, modules: set[str]) -> set[str]:
    """Return the modules that a command should not load for its help."""
    more = set(MORE.get(line.partition(" ")[0], "").split())
    more |= packages_of(more)
    ours = {name for name in modules if name.startswith(("quoth.", "quothwire.", "quothd.", "quothlog."))}
    packages = of_others(modules) - LIGHT - {"quoth", "quothwire"}
    return (ours - FEW - more) | (packages - more) | packages_of(modules) & HEAVY


def test_help_of_an_instrument_loads_only_what_it_measures() -> None:
    """The engine where that is measured alone, asyncio where it is compared."""
    names = {f"bench {path[1]}" for path in below(tree()) if path[0] == "bench" and len(path) > 1}
    lines = [*sorted(names - INSTRUMENTS.keys()), *INSTRUMENTS]
    for line, modules in zip(lines, loaded([f"{line} --help" for line in lines]), strict=True):
        heavy = packages_of(modules) & HEAVY - {"multiprocessing"}
        surplus = of_others(modules) - CLIENT - {"quothbench"} | heavy
        assert surplus <= INSTRUMENTS.get(line, set()), line


FEW_COMMANDS = ("ping", "status", "topic ls", "count t", "pub t two")
READERS = ("read t --limit 1", "tail t --after 0 --limit 1")


def test_request_to_a_broker_loads_only_what_it_needs(broker: BrokerProcess) -> None:
    with library.connect(broker.url) as client:
        client.publish("t", b"one")
    lines = (*FEW_COMMANDS, *READERS)
    modules: set[str] = set()
    for line, more in zip(lines, loaded([f"{line} --url {broker.url}" for line in lines]), strict=True):
        modules |= more
        assert "zmq" in modules
        assert not packages_of(modules) & (HEAVY | {"quothd", "quothlog", "hashlib"}), line
        assert of_others(modules) <= CLIENT, line
        needless = {"producer", "transaction", "forward.forwarder", "aio", "spark"}
        if line in FEW_COMMANDS:
            needless |= {"merging.multi_reader", "merging.merge", "cursor"}
        assert not modules & {f"quoth.{name}" for name in needless}, line


def test_version_is_the_installed_one() -> None:
    assert version("quoth") == VERSION


@pytest.mark.parametrize("package", [library, quothlog], ids=lambda package: package.__name__)
def test_every_public_name_is_loaded_on_demand(package: ModuleType) -> None:
    names = package.__all__
    assert dir(package) == sorted(names)
    script = f"import sys, {package.__name__}; print(*(name for name in sys.modules if 'quoth' in name))"
    assert run_script(script).stdout.split() == [package.__name__]
    assert all(getattr(package, name).__name__ == name for name in names)
    with pytest.raises(AttributeError, match="nonsense"):
        getattr(package, "non" + "sense")
