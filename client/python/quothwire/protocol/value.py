"""Dataclasses that take no time to define, for messages, because every start of a program defines them.

`dataclass(frozen=True, slots=True)` compiles seven methods for each class, which takes 1.2 ms, and of sixty
classes a command uses three. A class that inherits `Value` directly becomes a dataclass when its first
instance or its fields are needed, and only `__init__` is compiled then; comparison, hash and text are
inherited. The type checker reports a change of a field. There is no check at run time, which saves 0.65 us
for a value of six fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, dataclass_transform


class _Fields:
    """The attribute of a class that `dataclasses.fields` reads."""

    def __get__(self, _instance: object, kind: type[Value]) -> Any:
        if kind is Value:
            raise AttributeError("a value of no kind has no fields")
        _complete(kind)
        return kind.__dataclass_fields__


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value:
    """The base of such dataclasses. Two values are equal if their classes and all fields are."""

    __dataclass_fields__ = _Fields()

    def __init_subclass__(cls) -> None:
        assert cls.__bases__ == (Value,), "a value inherits from no other one"
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
    made: Any = dataclass(eq=False, repr=False)(type(kind.__name__, kind.__bases__, found))
    for name in vars(made).keys() - found.keys() - {"__init__"}:
        setattr(kind, name, vars(made)[name])
    # The last one, because `__init__` marks a class as complete.
    setattr(kind, "__init__", made.__init__)  # noqa: B010  for the type checker it is a method of the class
