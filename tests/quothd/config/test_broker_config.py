"""The configuration: the source of each value, and the errors for wrong ones."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kit.machine.processes import drop_capabilities, in_child
from quothd.config import template
from quothd.config.check import check
from quothd.config.config import KEYS, SCHEMA, Config
from quothd.config.sources import load, read
from quothwire.config.arguments import parser_of
from quothwire.config.config_key import Size, Span
from quothwire.config.template import toml
from quothwire.errors import QuothError
from quothwire.text import variables

SAMPLES: dict[str, tuple[str, Any, str, Any, str, Any]] = {
    # key: (text in the file, its value, text in the environment, its value, argument, its value)
    "dir": ('"/a"', Path("/a"), "/b", Path("/b"), "/c", Path("/c")),
    "host": ('"::1"', "::1", "127.0.0.2", "127.0.0.2", "localhost", "localhost"),
    "port": ("1", 1, "2", 2, "3", 3),
    "listen": ('["ipc://a"]', ("ipc://a",), "ipc://b, ipc://c", ("ipc://b", "ipc://c"), "", ()),
    "insecure": ("true", True, "0", False, "yes", True),
    "audit": ("false", False, "1", True, "no", False),
    "auto_create": ("false", False, "on", True, "off", False),
    "durability": ('"synced"', "synced", "written", "written", "synced", "synced"),
    "retention": ('"until_acked"', "until_acked", "limits", "limits", "until_acked", "until_acked"),
    "log_level": ('"debug"', "debug", "warning", "warning", "error", "error"),
    "log_format": ('"json"', "json", "text", "text", "json", "json"),
    "rules": ("false", False, "on", True, "off", False),
    "memory_max": ("300000000", 300_000_000, "2GiB", 2**31, "1GiB", 2**30),
    "server_key": ('"/a.key"', "/a.key", "b.key", "b.key", "/c.key", "/c.key"),
    "clients": ('"/a.toml"', "/a.toml", "b.toml", "b.toml", "/c.toml", "/c.toml"),
    "ipc_mode": ('"0660"', 0o660, "0666", 0o666, "600", 0o600),
    "ipc_group": ('"users"', "users", "7", "7", "", ""),
    "poe_listen": ('"tcp://a:1"', "tcp://a:1", "tcp://b:2", "tcp://b:2", "", ""),
    "umask": ('"0027"', 0o027, "0007", 0o007, "0o22", 0o022),
}
FLOATS = ("4", 4.0, "5.5", 5.5, "6e1", 60.0)
INTEGERS = ("20000000", 20_000_000, "30000000", 30_000_000, "40000000", 40_000_000)


def samples(key: str) -> tuple[str, Any, str, Any, str, Any]:
    """A text and its value for each of the three sources."""
    default = getattr(Config(), key)
    return SAMPLES.get(key) or (FLOATS if isinstance(default, float) else INTEGERS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "quoth.toml"


def error_of(act: Callable[[], object]) -> QuothError:
    """The error of a call: always `bad_setting`."""
    with pytest.raises(QuothError) as caught:
        act()
    assert caught.value.code == "bad_setting"
    return caught.value


def test_an_argument_wins_over_the_environment_over_the_file_over_the_default(file: Path) -> None:
    """An argument that is None is not given: a default of the command line would hide the environment."""
    for key in KEYS:
        in_file, file_value, in_environment, environment_value, argument, argument_value = samples(key)
        default = getattr(Config(), key)
        environment = {f"QUOTH_{key.upper()}": in_environment}
        file.write_text(f"{key} = {in_file}\n")
        for given, variables_, path, value in (
            (None, {}, None, default),
            (None, {}, file, file_value),
            (None, environment, None, environment_value),
            (None, environment, file, environment_value),
            (argument, {}, file, argument_value),
            (argument, environment, None, argument_value),
            (argument, environment, file, argument_value),
        ):
            found = getattr(load({key: given}, variables_, path), key)
            assert found == value
            assert type(found) is type(default) or key == "dir"


UNKNOWN_KEYS = {
    "prot": "port",
    "count_interval": "count_limit",
    "worker_timout": "worker_timeout",
    "Port": "port",
    "": "",
}


def test_the_error_for_an_unknown_key_suggests_a_similar_one(file: Path) -> None:
    """In the file as among the arguments."""
    for key, near in UNKNOWN_KEYS.items():
        file.write_text(f'"{key}" = 1\n')
        for arguments, path in (({key: 1}, None), ({}, file)):
            problem = error_of(partial(load, arguments, {}, path))
            assert repr(key) in problem.text
            assert f"did you mean {near}?" in problem.hint or (not near and problem.hint)


WRONG_VALUES: list[tuple[str, Any]] = [
    ("port", "70000"), ("port", "-1"), ("port", "http"), ("port", ""), ("port", "5555.5"), ("port", True),
    ("port", "65535"), ("worker_timeout", "0"), ("worker_timeout", "soon"), ("worker_timeout", "nan"),
    ("worker_timeout", True), ("worker_timeout", "2000000000"), ("check_interval", "5x"),
    ("sync_interval", "0"),
    ("check_interval", "-1"), ("durability", "maybe"), ("durability", 5), ("max_age", "-1"),
    ("size_limit", "infinity"), ("frame_bytes_max", "infinity"), ("disk_free_min", "infinity"),
    ("max_bytes", "1GiBB"), ("max_bytes", []),
    ("max_age", "nan"), ("size_limit", "1.5"), ("size_limit", "0"), ("workers_max", "0"), ("waits_max", "0"),
    ("frame_bytes_max", "10"), ("frame_bytes_max", str(2**63)),
    ("request_bytes_max", "10"), ("unsynced_bytes_max", "1"),
    ("insecure", "maybe"), ("ipc_mode", "0400"), ("ipc_mode", "0800"), ("ipc_mode", "7777"),
    ("umask", "0000"), ("umask", "0777"), ("umask", "0070"), ("umask", "rwx"), ("server_key", 5),
    ("auto_create", 7), ("dir", 5), ("host", 5), ("listen", 5), ("stop_timeout", "-1"),
]  # fmt: skip


def test_the_error_for_a_wrong_value_names_the_key_and_quotes_the_value() -> None:
    for key, value in WRONG_VALUES:
        problem = error_of(partial(load, {key: value}, {}))
        assert key in problem.text
        assert str(value).split(".")[0] in problem.text
        if isinstance(value, str):
            error_of(partial(load, {}, {f"QUOTH_{key.upper()}": value}))
    for key, given, text in (
        ("sync_interval", "0", "sync_interval is at least 1 millisecond, not 0.0"),
        ("request_bytes_max", "5", "request_bytes_max is at least 16 MiB, not 5"),
        ("worker_timeout", "100000w", "worker_timeout is at least 10 milliseconds and at most 11574 days "),
    ):
        assert text in error_of(partial(load, {key: given}, {})).text


def test_keys_of_a_table_may_be_above_the_tables_and_others_have_to_be_there(file: Path) -> None:
    for text in ('[security]\nserver_key = "a"\n', 'server_key = "a"\n', 'security = {server_key = "a"}\n'):
        file.write_text(f"port = 7\n{text}")
        found = read({}, {}, file)
        assert (found.config.port, found.config.server_key) == (7, str(file.parent / "a"))
        assert set(found.origins) == {"port", "server_key"}
    assert read({}, {}, file).origin("port") == f"{file}:1"
    for text, problem in (
        ("[security]\nport = 7\n", ":2: port is not in the table [security]"),
        ("[security]\nserver_keys = 7\n", ":2: there is no key 'server_keys'"),
        ("[securty]\nserver_key = 7\n", ":1: there is no key 'securty'"),
        ('server_key = "a"\n[security]\nserver_key = "a"\n', "server_key is there twice, also in [security]"),
        ("[security]\numask = 27\n", ":2: umask cannot be 27"),
        ("[security]\nserver_key = 7\n", ":2: server_key cannot be 7"),
    ):
        file.write_text(text)
        assert f"{file}" in error_of(partial(load, {}, {}, file)).text
        assert problem in error_of(partial(load, {}, {}, file)).text


def test_a_table_has_its_keys_without_its_name_also_those_that_exist_above_it(file: Path) -> None:
    """`listen` in [poe] is `poe_listen`; without the table `listen` is another key."""
    poe = "tcp://127.0.0.1:5557"
    for text in (f'[poe]\nlisten = "{poe}"\n', f'poe = {{listen = "{poe}"}}\n', f'poe_listen = "{poe}"\n'):
        file.write_text(f'listen = "ipc:///run/x"\n{text}')
        found = read({}, {}, file)
        assert (found.config.listen, found.config.poe_listen) == (("ipc:///run/x",), poe)
        assert set(found.origins) == {"listen", "poe_listen"}
    file.write_text(f'listen = "ipc:///run/x"\n[poe]\nlisten = "{poe}"\n')
    assert read({}, {}, file).origin("poe_listen") == f"{file}:3"
    assert load({}, {"QUOTH_POE_LISTEN": poe}).poe_listen == poe
    for text, problem in (
        ("[poe]\nlisten = 7\n", ":2: poe_listen cannot be 7"),
        ('[poe]\nlisen = "a"\n', ":2: there is no key 'lisen'"),
        ('[poe]\nhost = "a"\n', ":2: host is not in the table [poe]"),
        ('poe_listen = "a"\n[poe]\nlisten = "a"\n', "poe_listen is there twice, also in [poe]"),
        ('[poe]\npoe_listen = "a"\nlisten = "a"\n', "poe_listen is there twice, also in [poe]"),
    ):
        file.write_text(text)
        assert problem in error_of(partial(load, {}, {}, file)).text
    file.write_text('[poe]\nlisen = "a"\n')
    assert error_of(partial(load, {}, {}, file)).hint == "did you mean listen?"


QUANTITIES: list[tuple[str, Any, Any]] = [
    ("max_age", "7d", 604_800.0),
    ("max_age", "infinity", 0.0),
    ("max_age", math.inf, 0.0),
    ("sync_interval", "20ms", 0.02),
    ("worker_timeout", "1h30m", 5_400.0),
    ("worker_timeout", "infinity", 1e9),
    ("stop_timeout", 1e9, 1e9),
    ("scrub_interval", "never", 0.0),
    ("max_bytes", "1GiB", 2**30),
    ("max_bytes", "infinity", 0),
    ("size_limit", "8MB", 8_000_000),
    ("scrub_rate", "infinity", 2**62),
    ("request_bytes_max", "1.5GiB", 3 * 2**29),
]


def test_spans_and_sizes_are_the_same_in_all_sources(file: Path) -> None:
    """As arguments, in the environment and in the file, also as a configuration file shows them."""
    for key, given, value in QUANTITIES:
        file.write_text(f'{key} = "{given}"\n' if isinstance(given, str) else f"{key} = {given}\n")
        sources = [load({key: given}, {}), load({}, {f"QUOTH_{key.upper()}": str(given)}), load({}, {}, file)]
        file.write_text(f"{key} = {toml(KEYS[key], value)}\n")
        for found in (*sources, load({}, {}, file)):
            assert getattr(found, key) == value
            assert type(getattr(found, key)) is type(value)


# -- the sources -------------------------------------------------------------------------------


def test_every_value_has_an_origin(file: Path) -> None:
    """The argument, the variable, the line of the file, or the default."""
    file.write_text(
        '# a comment\nmax_age = 5\n\n"max_bytes" = 5\nlisten = [\n  "ipc://a",\n]\nport = 5\nhost = "::1"\n'
    )
    found = read({"port": "7", "dir": None}, {"QUOTH_HOST": "127.0.0.1", "QUOTH_PORT": "6"}, file)
    names = ("port", "host", "max_age", "max_bytes", "listen", "dir")
    assert {name: found.origin(name) for name in names} == {
        "port": "--port", "host": "QUOTH_HOST", "max_age": f"{file}:2", "max_bytes": f"{file}:4",
        "listen": f"{file}:5", "dir": "default",
    }  # fmt: skip
    assert found.changes() == ("port", "listen", "max_age", "max_bytes")


FILE_ERRORS: list[tuple[bytes, str]] = [
    (b"a = 1\n", ":1: there is no key"),
    (b"max_age = 1\n\nprot = 1\n", ":3: there is no key"),
    (b"max_age = 1\n[broker]\nport = 1\n", ":2: there is no key"),
    (b"a.b = 1\n", ":1: there is no key"),
    *(
        (f"max_age = 5\nworker_timeout = {value}\n".encode(), ":2: worker_timeout")
        for value in ("0", "-1", "'soon'", "true", "[]")
    ),
    (b'max_age = "1h30"\n', ":1: max_age: '1h30' is not a span of time: 30 has no unit"),
    (b"a = 1\nb = '\xff'\n", ":2: a byte that is not UTF-8"),
    (b"a = 1\nb\n", "line 2"),
    (b"worker_timeout = ", "end of document"),
    (b"= 1", "line 1"),
    (b"port = 1\nport = 2", "end of document"),
    (b"port = 1\nworker_timout = 1\n", ":2: there is no key"),
    (b"port = 1\ndir = '~no-such-user/x'\n", ":2: dir cannot be '~no-such-user/x'"),
    (f"max_age = 1{'0' * 400}\n".encode(), ":1: max_age: a number of more than"),
    (f"port = 1\nsize_limit = 1{'0' * 400}\n".encode(), ":2: size_limit: a number of more than"),
    (f"max_age = 5\nport = 0x{'f' * 5_000}\n".encode(), ":2: port cannot be a number of more than"),
]


def test_the_error_for_a_wrong_file_names_the_file(file: Path) -> None:
    for content, text in FILE_ERRORS:
        file.write_bytes(content)
        problem = error_of(partial(load, {}, {}, file))
        assert str(file) in problem.text
        assert (f"{file}{text}" if text[0] == ":" else text) in problem.text
    assert error_of(partial(load, {"max_age": "1h30"}, {})).hint == "like 7d, 1h30m, 90s, 500ms or infinity"


UNKNOWN_VARIABLES = {
    "QUOTH_PROT": "QUOTH_PORT", "QUOTH_WORKER_TIMOUT": "QUOTH_WORKER_TIMEOUT",
    "QUOTH_DURABILTY": "QUOTH_DURABILITY", "QUOTH_LOGLEVEL": "QUOTH_LOG_LEVEL",
    "QUOTH_COUNT_INTERVAL": "QUOTH_COUNT_LIMIT", "QUOTH_port": "QUOTH_PORT",
    "QUOTH_URLS": "QUOTH_URL", "QUOTH_SOMETHING": "names with QUOTH_ are Quoth's own",
    "QUOTH_": "names with QUOTH_ are Quoth's own",
}  # fmt: skip


def test_the_error_for_an_unknown_variable_suggests_a_similar_one() -> None:
    for variable, meant in UNKNOWN_VARIABLES.items():
        problem = error_of(partial(read, {}, {variable: "5"}))
        assert problem.text == f"{variable}: there is no such variable"
        assert meant in str(problem.hint)


KUBERNETES = {
    "QUOTH_SERVICE_HOST": "10.96.0.7",
    "QUOTH_SERVICE_PORT": "5555",
    "QUOTH_PORT": "tcp://10.96.0.7:5555",
    "QUOTH_PORT_5555_TCP": "tcp://10.96.0.7:5555",
    "QUOTH_PORT_5555_TCP_PROTO": "tcp",
    "QUOTH_BROKER_SERVICE_HOST": "10.96.0.8",
    "QUOTH_BROKER_SERVICE_PORT_FAST": "5555",
    "QUOTH_BROKER_PORT": "udp://10.96.0.8:53",
    "QUOTH_BROKER_PORT_53_UDP_ADDR": "10.96.0.8",
}
"""The environment of a container beside the services ``quoth`` and ``quoth-broker``."""


def test_variables_of_other_programs_do_not_configure_the_broker() -> None:
    """Variables of the command, of the tests, and of Kubernetes."""
    others = dict.fromkeys((*variables.OTHERS, "PROT", "_QUOTH_COMPLETE", "QUOTH_SERVICE_PORT_FAST"), "5")
    for environment in (others, KUBERNETES):
        assert read({}, environment).config == Config()
    assert read({}, {**KUBERNETES, "QUOTH_PORT": "7000"}).config == Config(port=7000)
    error_of(partial(read, {}, {"QUOTH_PORT": "tcp:5555"}))
    error_of(partial(read, {}, {"QUOTH_BROKER_PORT": "5555"}))


def test_every_variable_of_the_project_is_known() -> None:
    """A new variable has to be added to the table."""
    root = Path(__file__).parents[3]
    files = [
        one for folder in ("broker", "client", "tools", "tests/kit") for one in (root / folder).rglob("*.py")
    ]
    written = {name for file in files for name in re.findall(r'"(QUOTH_[A-Z_]+)"', file.read_text())}
    keys = {variables.variable(key) for key in KEYS}
    assert {"QUOTH_URL", "QUOTH_SEED"} <= written
    assert written <= {*variables.OTHERS, *keys}


# -- the example ------------------------------------------------------------------------------------------

EXAMPLE = Path(__file__).parents[3] / "systemd" / "quothd.toml"
PROTOCOL = Path(__file__).parents[3] / "client" / "PROTOCOL.md"
COMMENTED = [line for line in template.text().splitlines() if re.match(r"#\w+ = ", line)]


def test_the_limits_of_the_protocol_are_the_defaults() -> None:
    """The keys in its table of all limits."""
    units = {"": 1, "s": 1, "MiB": 2**20, "GiB": 2**30}
    _, _, table = PROTOCOL.read_text().replace("a day", "86,400 s").partition("\n## Limits\n")
    told: dict[str, float] = {}
    for row in table.partition("\n## ")[0].splitlines():
        cells = re.match(r"\| (?!settings)(.+?) \| ([\d,.]+) ?(s|MiB|GiB|)\b(.*?) \|", row)
        if cells is not None:
            amount = float(cells[2].replace(",", "")) * units[cells[3]]
            told |= dict.fromkeys(re.findall(r"`(\w+)`", cells[1] + cells[4]), amount)
    told = {key: amount for key, amount in told.items() if key in KEYS}
    assert len(told) == 29
    assert {key: KEYS[key].default for key in told} == told


def test_the_example_is_the_one_that_the_code_makes_holds_every_key_once_and_sets_none() -> None:
    assert EXAMPLE.read_text() == template.text(), "quoth config example > systemd/quothd.toml"
    assert [line[1:].partition(" ")[0] for line in COMMENTED] == [key.name_in_table for key in KEYS.values()]
    assert load({}, {}, EXAMPLE) == Config()


def test_a_line_of_the_example_that_is_no_comment_sets_the_default(file: Path) -> None:
    for line, name in zip(COMMENTED, KEYS, strict=True):
        file.write_text(template.text().replace(f"\n{line}\n", f"\n{line[1:]}\n"))
        found = read({}, {}, file)
        assert found.config == Config()
        assert list(found.origins) == [name]


def test_every_key_is_an_option_with_its_help_and_its_reason() -> None:
    """A number has a noun, a quantity a unit."""
    text = " ".join(parser_of(SCHEMA, "quothd", "", "").format_help().split())
    for key in KEYS.values():
        assert f"--{key.name.replace('_', '-')} " in text
        assert " ".join(key.summary.split()) in text
        assert key.why in re.sub(r"\n# ", " ", template.text())
        assert key.help.endswith(".")
        if key.kind is int and key.name != "port":
            subject = r"(Connections|Records|Requests|Topics|Consumer groups|Subscriptions)\b"
            assert re.match(subject, key.help), key.help
        if key.kind in (Span, Size):
            assert re.match(r"(Time|Age) " if key.kind is Span else r"(Size|Free space|Data) ", key.help), key
            assert key.metavar == ("SPAN" if key.kind is Span else "SIZE")


# -- the check without a start ------------------------------------------------------------------


WRONG_SETTINGS: list[tuple[dict[str, str], str]] = [
    ({"host": "0.0.0.0"}, "--insecure"),
    ({"host": "::"}, "--insecure"),
    ({"listen": "tcp://192.0.2.1:5555"}, "--insecure"),
    ({"listen": "tcp://127.0.0.1"}, "no port"),
    ({"listen": "tcp://127.0.0.1:70000"}, "no port"),
    ({"listen": "http://127.0.0.1:80"}, "tcp://HOST:PORT or ipc://PATH"),
    ({"listen": "ipc:///no/such/directory/quoth"}, "there is no directory /no/such/directory"),
    ({"listen": "ipc:///no/such/directory/@quoth"}, "there is no directory /no/such/directory"),
    ({"listen": f"ipc:///tmp/{'x' * 100}"}, "too long"),
    ({"ipc_group": "no such group"}, "there is no group 'no such group'"),
    ({"server_key": "/no/such/file"}, "server_key without clients"),
    ({"clients": "/no/such/file"}, "has no effect without a server_key"),
    ({"server_key": "/no/such/file", "clients": "/no/such/file"}, "/no/such/file: No such file or directory"),
    ({"dir": "/dev/null"}, "/dev/null is no directory"),
    ({"dir": "/dev/null/below"}, "/dev/null is no directory"),
]


def test_a_check_finds_settings_with_which_a_start_fails() -> None:
    for settings, text in WRONG_SETTINGS:
        assert text in str(error_of(partial(check, load(settings, {}))))
    for host in ("localhost", "127.1.2.3", "::1"):
        check(Config(host=host))


@pytest.mark.skipif(os.geteuid() == 0 and sys.platform != "linux", reason="root may write anywhere")
def test_a_check_finds_a_directory_that_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    (tmp_path / "closed").mkdir(0)
    (tmp_path / "read only").mkdir(0o500)
    below = tmp_path / "closed" / "below"

    def is_closed(settings: dict[str, object]) -> str:
        if os.geteuid() == 0:
            drop_capabilities()
        return error_of(partial(check, load(settings, {}))).text

    closed: list[tuple[dict[str, object], str]] = [
        ({"dir": tmp_path / "read only"}, f"{tmp_path}/read only cannot be written to"),
        ({"dir": tmp_path / "read only" / "below" / "it"}, f"{tmp_path}/read only cannot be written to"),
        ({"dir": below / "it"}, f"{below}/it: Permission denied"),
        ({"dir": tmp_path, "listen": "ipc://closed/below/it"}, "closed/below: Permission denied"),
    ]
    for settings, text in closed:
        assert text in in_child(partial(is_closed, settings))


def test_a_check_of_the_configuration_creates_no_file(tmp_path: Path) -> None:
    listen = f"ipc://{tmp_path}/socket,ipc://@name,ipc://@a/name"
    check(load({"dir": tmp_path / "a" / "b", "listen": listen}, {}))
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_counts_from_the_folder_of_the_file_that_has_it(tmp_path: Path) -> None:
    """In an option or a variable it counts from the working directory, as every path that is typed."""
    file = tmp_path / "quothd.toml"
    file.write_text('[security]\nserver_key = "broker.key"\nclients = "/etc/quoth/clients.toml"\n')
    found = load({}, {}, file)
    assert found.server_key == str(tmp_path / "broker.key")
    assert found.clients == "/etc/quoth/clients.toml"
    assert load({"server_key": "broker.key"}, {"QUOTH_CLIENTS": "c"}, file).server_key == "broker.key"
    assert load({"server_key": "broker.key"}, {"QUOTH_CLIENTS": "c"}, file).clients == "c"
