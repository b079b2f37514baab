"""The configuration of quoth-web: its example, its limits, and the unit of its service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kit.machine.commands import Command
from quothweb.config import KEYS, WebConfig, example, read
from quothwire.errors import QuothError
from quothwire.text.variables import check_variables, check_web_variables

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "systemd" / "quoth-web.service").read_text()
BROKER_UNIT = (ROOT / "systemd" / "quothd.service").read_text()


def test_the_example_has_every_key_with_its_default(alone: Command, tmp_path: Path) -> None:
    shipped = (ROOT / "systemd" / "quoth-web.toml").read_text()
    assert shipped == example(), "quoth config example --web > systemd/quoth-web.toml"
    assert alone("config", "example", "--web").out.decode() == shipped
    file = tmp_path / "quoth-web.toml"
    file.write_text(re.sub(r"^#(\w+ = )", r"\1", shipped, flags=re.MULTILINE))
    assert read({}, {}, file).config == WebConfig()
    for key in KEYS.values():
        assert f"\n#{key.name} = " in shipped
        assert key.help.endswith(".")
        assert key.why.endswith(".")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"host": "::"}, "can be reached from other machines"),
        ({"host": "192.168.0.1"}, "can be reached from other machines"),
        ({"port": "65536"}, "port is 0 to 65535"),
        ({"streams_max": "0"}, "streams_max is at least 1"),
        ({"root_path": "/quoth/"}, "root_path is a path like /quoth"),
        ({"cors_origins": "https://a.example/"}, "is no origin"),
        ({"cors_origins": "null"}, "is no origin"),
        ({"timeout": "0"}, "timeout is at least"),
        ({"url": "nonsense"}, "url is the address of a broker"),
        ({"url": "tcp://127.0.0.1"}, "url is the address of a broker"),
        ({"url": "ipc://"}, "url is the address of a broker"),
    ],
)
def test_a_wrong_value_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(QuothError, match=re.escape(problem)) as refused:
        read(given, {})
    assert refused.value.code == "bad_setting"


@pytest.mark.parametrize(
    "given",
    [
        {"host": "::1"},
        {"host": "localhost"},
        {"host": "0.0.0.0", "insecure": "yes"},
        {"host": "0.0.0.0", "tokens": "/t"},
    ],
)
def test_other_machines_need_tokens_or_the_word_insecure(given: dict[str, Any]) -> None:
    read(given, {})


def test_its_variables_are_known_to_all_programs_and_checked_by_itself() -> None:
    environment = {"QUOTH_WEB_PORT": "1", "QUOTH_WEB_SERVICE_HOST": "10.0.0.1"}
    check_variables(environment, lambda: ())
    check_web_variables(environment, KEYS)
    assert read({}, environment).config.port == 1
    with pytest.raises(QuothError, match="did you mean QUOTH_WEB_TOKENS"):
        read({}, {"QUOTH_WEB_TOKEN": "x"})


def test_the_unit_is_as_closed_as_that_of_the_broker() -> None:
    """The service starts without the broker, behind it where both are there."""
    closed = [
        line for line in BROKER_UNIT.splitlines() if re.match(r"(Protect|Private|Restrict|NoNew|Lock)", line)
    ]
    assert len(closed) > 15
    assert [line for line in closed if line not in UNIT.splitlines()] == []
    assert "After=network.target quothd.service" in UNIT
    assert not re.search(r"^(Requires|BindsTo|PartOf)=", UNIT, re.MULTILINE)
    assert "StateDirectory" not in UNIT, "it writes nothing"
