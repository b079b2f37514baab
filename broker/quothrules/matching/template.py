"""Templates of topics and headers: ``orders.{headers[region]|unknown}``.

{topic} {pointer} {key} {headers[NAME]} {path[JMESPATH]}    parts of the record
{time:%Y-%m-%d}                                             its time, as `strftime` writes it
{headers[NAME]|DEFAULT}                                     a default where there is nothing
{{ }}                                                       braces
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from quothrules.matching.expression import Expression
from quothrules.matching.record_view import RecordView
from quothwire.errors import QuothError, error
from quothwire.pointer import to_datetime, to_text
from quothwire.text.suggestion import nearest

FIELDS = ("topic", "pointer", "time", "key", "headers", "path")
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_FIELD = re.compile(
    r"(?s)(?P<name>[^\[\]|:]*)(?:\[(?P<inner>.*)\])?(?:\|(?P<default>[^\[\]]*))?(?::(?P<form>[^\[\]]*))?"
)

Part = Callable[[RecordView], bytes | None]


class MissingField(Exception):
    """A record has nothing for a field of a template, and the field has no default."""


class Template:
    """A parsed template. Raises `RequestError` ``bad_setting`` for a text that is none.

    is_constant: it has no fields.
    """

    def __init__(self, text: str, form: str) -> None:
        self.text = text
        self.is_constant = True
        self._form = form
        self._parts = [self._part(piece) for piece in _PIECE.finditer(text)]

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    def render(self, view: RecordView) -> bytes:
        """Fill in a record. Raises `MissingField`, and `RuleFailure` as `Expression.value` does."""
        found = []
        for part in self._parts:
            content = part(view)
            if content is None:
                raise MissingField(f"{self.text!r}: the record has no {self._missing(view)}")
            found.append(content)
        return b"".join(found)

    def _missing(self, view: RecordView) -> str:
        """Return the first field without content, as the template has it."""
        fields = [piece[1] for piece in _PIECE.finditer(self.text) if piece[1] is not None]
        return next(field for field in fields if self._field(field)(view) is None)

    def _part(self, piece: re.Match[str]) -> Part:
        whole, field = piece[0], piece[1]
        if field is not None:
            self.is_constant = False
            return self._field(field)
        if whole in ("{", "}"):
            raise self._wrong(f"a single {whole}; two of them stand for one")
        literal = (whole[0] if whole in ("{{", "}}") else whole).encode()
        return lambda _: literal

    def _field(self, text: str) -> Part:
        found = _FIELD.fullmatch(text)
        if found is None:
            raise self._wrong(f"{{{text}}} is no field; like {{topic}} or {{headers[NAME]}}")
        name, inner, default, form = found["name"], found["inner"], found["default"], found["form"]
        if name not in FIELDS:
            near = nearest(name, FIELDS)
            raise self._wrong(f"there is no field {name!r}; " + (f"did you mean {near}?" if near else _ALL))
        if (inner is not None) != (name in ("headers", "path")) or inner == "":
            raise self._wrong(
                f"{{{text}}}: it is {{headers[NAME]}} and {{path[JMESPATH]}}, others have no brackets"
            )
        if form is not None and name != "time":
            raise self._wrong(f"{{{text}}}: only a time has a format")
        part = self._content(name, inner or "", form)
        if default is None:
            return part
        fallback = default.encode()
        return lambda view: fallback if (content := part(view)) is None else content

    def _content(self, name: str, inner: str, form: str | None) -> Part:
        if name == "headers":
            return lambda view: view.headers.get(inner)
        if name == "path":
            try:
                expression = Expression(inner, self._form)
            except QuothError as problem:
                raise self._wrong(problem.text) from None
            return lambda view: _bytes_of(expression.value(view))
        if name == "time" and form:
            return lambda view: to_datetime(view.message.pointer).strftime(form).encode()
        return _PLAIN[name]

    def _wrong(self, problem: str) -> QuothError:
        return error("bad_setting", f"template {self.text!r}: {problem}", _ALL)


_PLAIN: dict[str, Part] = {
    "topic": lambda view: view.message.topic.encode(),
    "pointer": lambda view: b"%d" % view.message.pointer,
    "time": lambda view: to_text(view.message.pointer).encode(),
    "key": lambda view: view.message.key,
}
_ALL = "fields are topic, pointer, time, key, headers[NAME], path[JMESPATH]"


def _bytes_of(found: object) -> bytes | None:
    """Return the text of what a path has found: text as it is, anything else as JSON, nothing for null."""
    match found:
        case None:
            return None
        case bytes():
            return found
        case str():
            return found.encode("utf-8", "surrogatepass")
        case _:
            return json.dumps(found, default=str).encode()
