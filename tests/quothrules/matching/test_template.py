"""Templates of topics and headers."""

from __future__ import annotations

import pytest

from kit.rules import POINTER, record, view
from quothrules.matching.template import MissingField, Template

RECORD = record(
    b'{"a": {"b": "x|y:z"}, "n": 5, "f": 1.5, "t": true, "l": [1, "\\u00fc"], "e": "", "z": null}',
    key=b"k",
    headers={"region": b"eu", "empty": b"", "raw": b"\xff", "a]b": b"c"},
)

FILLED = [
    ("", b""),
    ("plain", b"plain"),
    ("{{{topic}}}", b"{orders.eu}"),
    ("{topic}-{key}", b"orders.eu-k"),
    ("{pointer}", b"%d" % POINTER),
    ("{time}", b"2026-01-02T03:04:05.000001Z"),
    ("{time:%Y-%m-%d %H:%M}", b"2026-01-02 03:04"),
    ("{headers[region]}", b"eu"),
    ("{headers[empty]|d}", b""),
    ("{headers[none]|d}", b"d"),
    ("{headers[none]|}", b""),
    ("{headers[raw]}", b"\xff"),
    ("{headers[a]b]}", b"c"),
    ("{path[a.b]}", b"x|y:z"),
    ("{path[n]}", b"5"),
    ("{path[f]}", b"1.5"),
    ("{path[t]}", b"true"),
    ("{path[l[0]]}", b"1"),
    ("{path[l]}", b'[1, "\\u00fc"]'),
    ("{path[l[1]]}", "ü".encode()),
    ("{path[z || n]|d}", b"5"),
    ("{path[z]|d}", b"d"),
    ("{path[e]|d}", b""),
    ("ü{key}", "ük".encode()),
]


@pytest.mark.parametrize(("text", "expected"), FILLED)
def test_a_template_is_filled(text: str, expected: bytes) -> None:
    template = Template(text, "json")
    assert template.render(view(RECORD)) == expected
    assert template.is_constant == (text in ("", "plain"))


@pytest.mark.parametrize(
    ("text", "missing"),
    [("a-{headers[none]}", "headers[none]"), ("{topic}{path[z]}", "path[z]"), ("{path[a.c]}", "path[a.c]")],
)
def test_a_field_without_content(text: str, missing: str) -> None:
    with pytest.raises(MissingField) as raised:
        Template(text, "json").render(view(RECORD))
    assert str(raised.value) == f"{text!r}: the record has no {missing}"


def test_a_record_without_a_key() -> None:
    assert Template("{key|none}", "json").render(view(record())) == b"none"
    with pytest.raises(MissingField, match="no key"):
        Template("{key}", "json").render(view(record()))
