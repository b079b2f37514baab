"""The lines of the keys of TOML documents."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quothwire.text.toml_lines import Path, lines_of

DOCUMENT = '''\
# a comment with [brackets] and "quotes"
name = "a # no comment"
topics = [
    "a",  # one
    "b", "c",
    ["]", 'x']
]
"quoted\\u0041" = 1
dotted.a . "b c" = { x = 1, "y z" = [1, { q = 2 }], s = "}" }

[[rule]]
to = """
several
lines""" # behind
[rule.match]
regex = \'\'\'
a'
b\'\'\'
headers = { region = "eu" }

[[rule]]
[rule.match.headers]
region = true
[[rule.inner]]
a = 1
[[rule.inner]]
a = -2.5e3
'''


def test_every_key_has_its_line() -> None:
    expected: dict[Path, int] = {
        ("name",): 2,
        ("topics",): 3,
        ("topics", 0): 4,
        ("topics", 1): 5,
        ("topics", 2): 5,
        ("topics", 3): 6,
        ("topics", 3, 1): 6,
        ("quotedA",): 8,
        ("dotted",): 9,
        ("dotted", "a", "b c", "y z", 1, "q"): 9,
        ("dotted", "a", "b c", "s"): 9,
        ("rule", 0): 11,
        ("rule", 0, "to"): 12,
        ("rule", 0, "match"): 15,
        ("rule", 0, "match", "regex"): 16,
        ("rule", 0, "match", "headers", "region"): 19,
        ("rule", 1): 21,
        ("rule", 1, "match", "headers"): 22,
        ("rule", 1, "match", "headers", "region"): 23,
        ("rule", 1, "inner", 0, "a"): 25,
        ("rule", 1, "inner", 1, "a"): 27,
    }
    for text in (DOCUMENT, DOCUMENT.replace("\n", "\r\n")):
        found = lines_of(text)
        assert {path: found.get(path) for path in expected} == expected


def paths_of(value: Any, path: Path = ()) -> set[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path, *(one for key, inner in items for one in paths_of(inner, (*path, key)))}


def test_every_path_of_a_document_is_found() -> None:
    assert set(lines_of(DOCUMENT)) | {()} >= paths_of(tomllib.loads(DOCUMENT))


KEYS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=5)
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), st.text("a\"'\\#[]{}=,.\n ", max_size=8))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def written(value: Any) -> str:
    """Write a value as TOML. Lists have a line for each element."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return quoted(value)
        case list():
            return "[\n" + "".join(f"{written(one)}, # ]\n" for one in value) + "]"
        case _:
            return "{" + ", ".join(f"{quoted(key)} = {written(inner)}" for key, inner in value.items()) + "}"


@given(
    st.dictionaries(KEYS, VALUES, max_size=4), st.lists(st.dictionaries(KEYS, VALUES, max_size=2), max_size=3)
)
def test_generated_documents_have_a_line_for_every_path(
    values: dict[str, Any], rules: list[dict[str, Any]]
) -> None:
    """The line of a key at the top holds that key."""
    values.pop("rule", None)
    text = "".join(f"{quoted(key)} = {written(value)}\n" for key, value in values.items())
    for rule in rules:
        text += "[[rule]]\n" + "".join(f"{quoted(key)} = {written(value)}\n" for key, value in rule.items())
    parsed = tomllib.loads(text)
    lines = lines_of(text)
    assert set(lines) | {()} == paths_of(parsed)
    rows = text.split("\n")
    for key in values:
        assert rows[lines[(key,)] - 1].startswith(quoted(key))
    for number, rule in enumerate(rules):
        assert rows[lines["rule", number] - 1] == "[[rule]]"
        for key in rule:
            assert rows[lines["rule", number, key] - 1].startswith(quoted(key))
