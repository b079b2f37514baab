"""The configuration: where each value comes from, and what is wrong with one that is refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kit.peers import refused
from quothd.config import KEYS, Config, load
from quothd.main import _parser
from quothwire.errors import QuothError

SAMPLES: dict[str, tuple[str, Any, str, Any, str, Any]] = {
    # key: (text in the file, its value, text in the environment, its value, argument, its value)
    "dir": ('"/a"', Path("/a"), "/b", Path("/b"), "/c", Path("/c")),
    "host": ('"::1"', "::1", "127.0.0.2", "127.0.0.2", "localhost", "localhost"),
    "port": ("1", 1, "2", 2, "3", 3),
    "listen": ('["ipc://a"]', ("ipc://a",), "ipc://b, ipc://c", ("ipc://b", "ipc://c"), "", ()),
    "insecure": ("true", True, "0", False, "yes", True),
    "auto_create": ("false", False, "on", True, "off", False),
    "durability": ('"synced"', "synced", "written", "written", "synced", "synced"),
}
FLOATS = ("4", 4.0, "5.5", 5.5, "6e1", 60.0)
INTEGERS = ("20000000", 20_000_000, "30000000", 30_000_000, "40000000", 40_000_000)


def samples(key: str) -> tuple[str, Any, str, Any, str, Any]:
    """A text and its value for each of the three sources."""
    default = getattr(Config(), key)
    return SAMPLES.get(key) or (FLOATS if isinstance(default, float) else INTEGERS)


@pytest.mark.parametrize("key", KEYS)
def test_an_argument_wins_over_the_environment_over_the_file_over_the_default(
    tmp_path: Path, key: str
) -> None:
    """C62, for every key there is."""
    in_file, file_value, in_environment, environment_value, argument, argument_value = samples(key)
    file = tmp_path / "quoth.toml"
    file.write_text(f"{key} = {in_file}\n")
    environment = {f"QUOTH_{key.upper()}": in_environment}

    def value(*sources: str) -> Any:
        config = load(
            {key: argument} if "argument" in sources else {},
            environment if "environment" in sources else {},
            file if "file" in sources else None,
        )
        return getattr(config, key)

    assert value() == getattr(Config(), key)
    assert value("file") == file_value
    assert value("environment") == environment_value
    assert value("file", "environment") == environment_value
    for others in ((), ("file",), ("environment",), ("file", "environment")):
        assert value("argument", *others) == argument_value
    assert type(value("environment")) is type(getattr(Config(), key)) or key == "dir"


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_an_option(key: str) -> None:
    """C62: and every option a key."""
    option = f"--{key.replace('_', '-')}"
    assert option in _parser().format_help()


def test_what_is_not_given_is_not_an_argument() -> None:
    """C62: a default of the command line would hide the environment."""
    assert load({"port": None, "dir": None}, {"QUOTH_PORT": "7"}).port == 7


def test_the_defaults_are_those_of_the_design() -> None:
    """C62: the keys that the ancestor had keep their names."""
    known = {field.name for field in fields(Config)}
    assert known >= {
        "dir", "check_interval", "count_limit", "size_limit", "buffer_count_max", "worker_timeout", "port",
        "max_age",
    }  # fmt: skip
    config = Config()
    assert (config.port, config.size_limit, config.count_limit) == (5555, 64 * 2**20, 0)
    assert (config.check_interval, config.worker_timeout, config.sync_interval) == (0.5, 1.0, 0.05)
    assert (config.buffer_count_max, config.workers_max, config.max_age) == (100_000, 256, 0.0)
    assert (config.host, config.insecure, config.durability) == ("127.0.0.1", False, "written")


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("prot", "port"),
        ("count_interval", ""),
        ("worker_timout", "worker_timeout"),
        ("Port", "port"),
        ("", ""),
    ],
)
def test_an_unknown_key_is_an_error(tmp_path: Path, key: str, near: str) -> None:
    """C62: in the file as among the arguments, with a suggestion if one comes near."""
    file = tmp_path / "quoth.toml"
    file.write_text(f'"{key}" = 1\n')
    for arguments, path in (({key: 1}, None), ({}, file)):
        with pytest.raises(QuothError) as caught:
            load(arguments, {}, path)
        assert caught.value.code == "bad_setting"
        assert repr(key) in caught.value.text
        assert f"did you mean {near}?" in caught.value.hint or (not near and caught.value.hint)


def test_unknown_variables_are_passed_over() -> None:
    """C62: other programs may use the prefix."""
    assert load({}, {"QUOTH_SOMETHING": "1", "QUOTH_": "2", "PORT": "3"}).port == 5555


WRONG_VALUES: list[tuple[str, Any]] = [
    ("port", "70000"), ("port", "-1"), ("port", "http"), ("port", ""), ("port", "5555.5"), ("port", True),
    ("port", "65535"), ("worker_timeout", "0"), ("worker_timeout", "soon"), ("worker_timeout", "nan"),
    ("worker_timeout", True), ("worker_timeout", "inf"), ("check_interval", "inf"), ("sync_interval", "inf"),
    ("check_interval", "-1"), ("durability", "maybe"), ("durability", 5), ("max_age", "-1"),
    ("max_age", "inf"),
    ("max_age", "nan"), ("size_limit", "1.5"), ("size_limit", "0"), ("workers_max", "0"), ("waits_max", "0"),
    ("frame_bytes_max", "10"), ("request_bytes_max", "10"), ("unsynced_bytes_max", "1"),
    ("insecure", "maybe"),
    ("auto_create", 7), ("dir", 5), ("host", 5), ("listen", 5), ("stop_timeout", "-1"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), WRONG_VALUES)
def test_a_wrong_value_is_an_error(key: str, value: Any) -> None:
    """C62: that names the key and quotes the value, wherever it came from."""
    with pytest.raises(QuothError) as caught:
        load({key: value}, {})
    assert caught.value.code == "bad_setting"
    assert key in caught.value.text
    assert str(value).split(".")[0] in caught.value.text
    if isinstance(value, str):
        with refused("bad_setting"):
            load({}, {f"QUOTH_{key.upper()}": value})


@pytest.mark.parametrize(
    "text", ["worker_timeout = ", "= 1", "\xff", "[broker]\nport = 1\n", "port = 1\nport = 2"]
)
def test_a_file_that_is_no_configuration_is_an_error(tmp_path: Path, text: str) -> None:
    """C62: that names the file."""
    file = tmp_path / "quoth.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(QuothError) as caught:
        load({}, {}, file)
    assert caught.value.code == "bad_setting"
    assert str(file) in caught.value.text


def test_a_time_may_stand_for_never() -> None:
    """C62: as long as somebody can wait for it."""
    config = load({"worker_timeout": 1e9, "check_interval": "1e9", "stop_timeout": 1e9}, {})
    assert config.worker_timeout == 1e9


def test_a_topic_whose_settings_are_damaged_keeps_everything() -> None:
    """C45: no limit of its own or of the broker removes anything."""
    config = load({"max_age": 5, "max_bytes": 5_000}, {})
    options = config.log_options(config.topic_settings())
    assert (options.max_age, options.max_bytes) == (5.0, 5_000)
    options = config.log_options(config.topic_settings(), keep_all=True)
    assert (options.max_age, options.max_bytes) == (0.0, 0)
