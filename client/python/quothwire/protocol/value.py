"""The declaration of messages: dataclasses that take no time to define, and the bounds of their fields.

`dataclass(frozen=True, slots=True)` compiles seven methods for each class, which takes 1.2 ms, and of sixty
classes a command uses three. A class that inherits `Value` becomes a dataclass when its first instance or its
fields are needed, and only `__init__` is compiled then; comparison, hash and text are inherited. The type
checker reports a change of a field. There is no check at run time, which saves 0.65 us for a value of six
fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, dataclass_transform

from quothwire.errors import QuothError, error


class Range(NamedTuple):
    """The bounds of an integer, both included, or of the length of a list, in the annotation of a field.

    above: the error code for a request with a larger integer. The one for a smaller integer is
    ``bad_request``.
    """

    low: int
    high: int
    above: str = "too_large"

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"

    def error_for(self, name: str, value: int, written: str = "") -> QuothError:
        """Make the error for a request whose integer `name` lies outside. written: its text there."""
        code = self.above if value > self.high else "bad_request"
        return error(code, f"{name} is {written or value}: it must be an integer {self}", "nothing was done")


LATER: dict[str, Any] = {"later": True}
"""Metadata of a field that was added later. It is not sent at its default, so that an older broker accepts
the message."""


class _Fields:
    """The attribute of a class that `dataclasses.fields` reads."""

    def __get__(self, _instance: object, kind: type[Value]) -> Any:
        if vars(kind).get("__dataclass_fields__") is self:
            raise AttributeError("a value of no kind has no fields")
        _complete(kind)
        return kind.__dataclass_fields__


BASE = _Fields()
"""Marks a class, as its `__dataclass_fields__`, as a base of dataclasses, without fields of its own."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value:
    """The base of such dataclasses. Two values are equal if their classes and all fields are."""

    __dataclass_fields__ = BASE

    def __init_subclass__(cls) -> None:
        assert vars(cls.__base__).get("__dataclass_fields__") is BASE, "a value inherits from no other one"
        assert "__init__" not in vars(cls), "it is made from the fields"

    if not TYPE_CHECKING:

        def __init__(self, *arguments: Any, **named: Any) -> None:
            _complete(self.__class__)
            self.__init__(*arguments, **named)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        held = ", ".join(f"{name}={content!r}" for name, content in vars(self).items())
        return f"{self.__class__.__qualname__}({held})"


def _complete(kind: type[Value]) -> None:
    """Make the class a dataclass, through a copy. Threads that do so at the same time do the same."""
    found = vars(kind).copy()
    if "__init__" in found:
        return
    try:
        made: Any = dataclass(eq=False, repr=False)(type(kind.__name__, (Value,), found))
    except RuntimeError as problem:  # Python 3.11 wraps what `__set_name__` raises, such as an interrupt
        raise problem.__cause__ or problem from None
    for name in vars(made).keys() - found.keys() - {"__init__"}:
        setattr(kind, name, vars(made)[name])
    # The last one, because `__init__` marks a class as complete.
    setattr(kind, "__init__", made.__init__)  # noqa: B010  for the type checker it is a method of the class
