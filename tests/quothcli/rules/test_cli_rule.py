"""`quoth rule`: rule sets are tried, added, listed, shown and removed, and have effect meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.deadlines import eventually
from kit.machine.commands import Command
from kit.rules import add_rules
from quoth import Client, NotFound

Write = Callable[..., str]


@pytest.fixture
def file(tmp_path: Path) -> Write:
    """Write a rule file; returns its path."""

    def write(text: str, name: str = "shop.toml") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def name(topic: str) -> str:
    """A name of a rule set that no other test has."""
    return topic[:60].strip("-").replace("[", "").replace("]", "")


@pytest.fixture(autouse=True)
def _end(quoth: Command, name: str) -> Iterator[None]:
    """Remove the rule set of a test."""
    yield
    quoth("rule", "rm", name, "--yes")


def rules(topic: str, name: str, target: str = "copy") -> str:
    return f"""\
name = "{name}"
topics = ["{topic}", "{topic}-*"]
[[rule]]
name = "large"
to = ["{topic}.large", "{topic}.{{headers[region]|none}}"]
match.prefix = "large"
[[rule]]
name = "key"
to = "{topic}.{{key}}"
match.prefix = "key"
[[rule]]
name = "rest"
to = "{topic}.{target}"
"""


def values(client: Client, topic: str) -> list[bytes]:
    try:
        return [message.value for message in client.read(topic)]
    except NotFound:
        return []


def test_a_dry_run_shows_what_rules_would_have_done(
    quoth: Command, client: Client, file: Write, topic: str, name: str
) -> None:
    """In tables for people, and as an object; nothing is written, and a failure is the exit status 1."""
    client.publish(topic, [b"large 1", b"small", b"large 2"])
    client.publish(f"{topic}-b", [b"small \x1b"] * 5, key=b"k")
    path = file(rules(topic, name))
    result = quoth("rule", "test", path)
    assert (result.status, result.err) == (0, "")
    assert result.lines[:8] == [
        "8 records, 3 rules; nothing was written",
        "",
        "RULE   FATE    RECORDS",
        "large  routed        2",
        "rest   routed        6",
        "",
        f"TOPIC{' ' * (len(topic) + 1)}  RECORDS",
        f"{topic}.copy         6",
    ]
    assert f"    -> {topic}.large, {topic}.none" in result.lines
    assert any(line.endswith(" key=k small \\x1b") for line in result.lines)
    assert [name for name in client.topics() if name.startswith(f"{topic}.")] == []
    client.publish(topic, b"key")
    result = quoth("rule", "test", path, "--topic", topic, "--format", "json")
    (found,) = result.objects
    assert result.status == 1
    assert (found["records"], found["failed"]) == (4, 1)
    assert {"rule": "key", "fate": "failed", "records": 1} in found["rules"]
    assert found["topics"] == {f"{topic}.large": 2, f"{topic}.none": 2, f"{topic}.copy": 1}
    example = next(one for one in found["examples"] if one["fate"] == "failed")
    assert example["record"]["value"] == "key"
    assert "the record has no key" in example["problem"]
    assert quoth("rule", "test", path, "--topic", topic, "--limit", "2", "--format", "raw").lines == ["2"]
    newest = client.topic(topic).last
    since = quoth("rule", "test", path, "--topic", topic, "--since", str(newest), "--format", "raw")
    assert since.lines == ["1"]


def test_a_rule_set_is_added_changed_and_removed(
    quoth: Command, client: Client, file: Write, topic: str, name: str
) -> None:
    """The broker runs it meanwhile; `--from` backfills, then follows."""
    client.publish(topic, b"before")
    path = file(rules(topic, name))
    result = quoth("rule", "add", path, "--from", "begin")
    assert (result.status, result.lines) == (0, [f"{name} version 1, 3 rules"])
    client.publish(topic, b"large")
    eventually(lambda: values(client, f"{topic}.large") == [b"large"], "it has effect", 60)
    eventually(lambda: values(client, f"{topic}.copy") == [b"before"], "that of before is routed, too")
    result = quoth("rule", "add", path)
    assert "is not added again" in result.err
    assert result.lines == [f"{name} version 1, 3 rules"]
    changed = file(rules(topic, name, "other"))
    assert quoth("rule", "add", changed, "--format", "json").objects[0]["version"] == 2
    shown = quoth("rule", "show", name)
    assert shown.out.decode() == Path(changed).read_text()
    assert quoth("rule", "show", name, "--version", "1").out.decode() == rules(topic, name)
    versions = quoth("rule", "show", name, "--versions").lines
    assert [line.split()[0] for line in versions] == ["1", "2"]
    assert [
        (one["action"], one["run"])
        for one in quoth("rule", "show", name, "--versions", "--format", "json").objects
    ] == [
        ("set", 1),
        ("set", 1),
    ]

    def listed() -> dict[str, object]:
        (row,) = [one for one in quoth("rule", "ls", "--format", "json").objects if one["name"] == name]
        return dict(row)

    eventually(lambda: listed()["totals"] == {"records": 2, "written": 3}, "the counts are saved")
    row = listed()
    assert (row["version"], row["lag"], row["dead"], row["problem"]) == (2, 0, 0, "")
    assert row["groups"][0]["group"] == f"rules.{name}"  # type: ignore[index]
    table = quoth("rule", "ls").lines
    assert table[0].split() == ["NAME", "VERSION", "SINCE", "READS", "RULES", "LAG", "DEAD", "PROBLEM"]
    assert any(line.startswith(name) for line in table)
    stats = quoth("rule", "stats", name).lines
    assert stats[0] == name
    assert any(line.split() == ["large", "routed", "1"] for line in stats)
    assert "  2 records, 3 written" in stats
    result = quoth("rule", "rm", name, "--yes")
    assert result.lines == [f"removed {name}"]
    assert not [one for one in quoth("rule", "ls", "--format", "json").objects if one["name"] == name]
    assert "was removed" in quoth("rule", "show", name).refused(3)[0]
    assert quoth("rule", "show", name, "--version", "2").out.decode() == Path(changed).read_text()
    eventually(lambda: client.groups(topic) == [], "its group is gone")


WRONG = [
    (("rule", "add", "{missing}"), 2, "No such file"),
    (("rule", "add", "{wrong}"), 2, "wrong.toml:2: there is no key 'tos' here"),
    (("rule", "test", "{wrong}"), 2, "did you mean to?"),
    (("rule", "test", "{binary}"), 2, "binary.toml:2: a byte that is not UTF-8"),
    (("rule", "add", "{good}", "--from", "yesterday"), 2, "yesterday"),
    (("rule", "test", "{good}", "--topic", "other"), 2, "the rules do not read 'other'"),
    (("rule", "test", "{good}"), 3, "no topic matches"),
    (("rule", "show", "nothing"), 3, "there is no rule set 'nothing'"),
    (("rule", "stats", "nothing"), 3, "there is no rule set 'nothing'"),
    (("rule", "rm", "nothing", "--yes"), 3, "there is no rule set 'nothing'"),
    (
        (
            "rule",
            "list",
        ),
        2,
        "quoth rule ls",
    ),
    (("rules",), 2, "quoth rule"),
]


@pytest.mark.parametrize(("arguments", "status", "text"), WRONG)
def test_what_is_wrong_is_said(
    quoth: Command, file: Write, tmp_path: Path, arguments: tuple[str, ...], status: int, text: str
) -> None:
    paths = {
        "missing": str(tmp_path / "missing.toml"),
        "wrong": file('topics = "a"\nrule = [{ tos = "b" }]', "wrong.toml"),
        "good": file('topics = "there-is-none"\nrule = [{ to = "b" }]', "good.toml"),
        "binary": str(tmp_path / "binary.toml"),
    }
    (tmp_path / "binary.toml").write_bytes(b"a = 1\n\xff")
    result = quoth(*(one.format(**paths) for one in arguments))
    assert (result.status, result.out) == (status, b""), result
    assert text in result.err


def test_a_version_that_has_no_effect_is_told(quoth: Command, client: Client, topic: str, name: str) -> None:
    add_rules(client, name, f'topics = "{topic}"\n[[rule]]\nto = "x"')
    add_rules(client, name, "nonsense")
    (row,) = [one for one in quoth("rule", "ls", "--format", "json").objects if one["name"] == name]
    assert row["version"] == 1
    assert "no TOML" in row["problem"]
    assert "no effect" in quoth("rule", "show", name, "--versions").lines[1]


def test_names_of_rule_sets_are_completed(quoth: Command, client: Client, topic: str, name: str) -> None:
    from quothcli.commands.rules.rule import rule_names

    add_rules(client, name, f'topics = "{topic}"\n[[rule]]\nto = "x"')

    class Line:
        def __init__(self) -> None:
            self.params = {"url": quoth.url}

        def find_root(self) -> Line:
            return self

    assert rule_names(Line(), name[:-1]) == [name]  # type: ignore[arg-type]
    assert rule_names(Line(), "no such") == []  # type: ignore[arg-type]


def test_an_object_is_json(quoth: Command, client: Client, topic: str, name: str) -> None:
    add_rules(client, name, f'topics = "{topic}"\n[[rule]]\nto = "x"', begin=0)
    (found,) = quoth("rule", "show", name, "--format", "json").objects
    assert json.loads(json.dumps(found)) == found
    assert (found["name"], found["begin"], found["action"]) == (name, 0, "set")
