"""Comparison of what a client did with what a session expects."""

from __future__ import annotations

from typing import Any

from player.deviation import Deviation
from player.frames import Request


class Bindings:
    """The values that a client chose, by the names that a session gives them: "$producer" for example.

    The first value under a name binds it; later ones have to be the same. Different names have different
    values.
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def take(self, name: str, found: Any) -> None:
        """Bind a name, or compare the value with that of the name. Raises `Deviation`."""
        for other, value in self._values.items():
            if (value == found) != (other == name):
                raise Deviation(f"{name} is {found}, and {other} was {value}")
        self._values[name] = found


def compare(what: str, expected: Any, found: Any, bindings: Bindings) -> None:
    """Compare the fields that are expected; others may be there, too. Raises `Deviation`.

    Numbers are equal to their decimal digits.
    """
    if isinstance(expected, dict) and "any_of" in expected:
        if all(plain(one) != plain(found) for one in expected["any_of"]):
            raise Deviation(f"{what} is {found!r}, which is none of {expected['any_of']}")
    elif isinstance(expected, dict) and "between" in expected:
        least, most = map(int, expected["between"])
        if not str(plain(found)).isdecimal() or not least <= int(found) <= most:
            raise Deviation(f"{what} is {found!r}, where {least} to {most} is expected")
    elif isinstance(expected, dict):
        if not isinstance(found, dict):
            raise Deviation(f"{what} is {found!r}, where {expected!r} is expected")
        for name, value in expected.items():
            if name not in found:
                raise Deviation(f"{what} has no {name}: {found!r}")
            compare(f"{what}.{name}", value, found[name], bindings)
    elif isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            raise Deviation(f"{what} is {found!r}, where {expected!r} is expected")
        for row, (value, other) in enumerate(zip(expected, found, strict=True)):
            compare(f"{what}[{row}]", value, other, bindings)
    elif isinstance(expected, str) and expected.startswith("$"):
        bindings.take(expected, found)
    elif plain(expected) != plain(found):
        raise Deviation(f"{what} is {found!r}, where {expected!r} is expected")


def plain(value: Any) -> Any:
    """Return an integer as its digits, and all else unchanged."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def compare_request(
    step: dict[str, Any], request: Request, earlier: dict[str, Request], bindings: Bindings
) -> None:
    """Compare a request with a step `expect`. Raises `Deviation`."""
    if request.operation != step["expect"]:
        raise Deviation(f"the client sends {request}, where {step['expect']} is expected")
    if "repeats" in step:
        first = earlier[step["repeats"]]
        if not request.repeats(first):
            raise Deviation(f"the client sends {request}, which does not repeat {first}")
    compare("topic", step.get("topic", request.topic), request.topic, bindings)
    compare(step["expect"], step.get("arguments", {}), request.arguments, bindings)
    if "batch" in step:
        expected = {"flags": 0, **step["batch"]}
        count = len(expected["values"])
        expected = {"keys": [None] * count, "headers": [{}] * count, **expected}
        compare("batch", expected, request.batch, bindings)
    for name, found in (("parts", request.parts), ("rows", request.rows)):
        if name in step:
            compare(name, step[name], found, bindings)


def compare_results(expected: list[dict[str, Any]], found: Any, bindings: Bindings) -> None:
    """Compare the results of the calls. A call fails exactly if that is expected. Raises `Deviation`."""
    compare("results", expected, found, bindings)
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        if "error" in other and "error" not in one:
            raise Deviation(f"results[{number}] is an error: {other!r}")
