"""Elements of HTML: each text is a text node, so nothing that a record or a name holds becomes markup.

The keys of attributes are those of this package, never of data: NiceGUI executes a key that begins with a
colon.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

ASSETS = Path(__file__).parent / "assets"

_VALUE = "^value"
"""The attribute. Vue sets the property `value` again with each update of a page, whatever a field holds."""


class Tag(TextElement):
    """An element of HTML with a text."""


def tag(kind: str, /, text: str = "", classes: str = "", **attributes: Any) -> Tag:
    """Add an element. attributes: a name with _ stands for one with -; None leaves it out.

    `value` is that which a field begins with: an update of the page keeps what was typed since.
    """
    element = Tag(tag=kind, text=text)
    if classes:
        element.classes(classes)
    for key, value in attributes.items():
        if value is not None:
            element.props[_VALUE if key == "value" else key.rstrip("_").replace("_", "-")] = value
    return element


def link(text: str, href: str, classes: str = "", **attributes: Any) -> Tag:
    """Add a link to a page."""
    return tag("a", text, classes, href=href, **attributes)


def section(title: str, level: int = 2) -> Element:
    """Add a section with a heading; its content goes into it."""
    found = tag("section", classes="section")
    with found:
        tag(f"h{level}", title)
    return found


def facts(rows: Sequence[tuple[str, str]]) -> Element:
    """Add a list of names and values."""
    with tag("dl", classes="facts") as found:
        for name, value in rows:
            tag("dt", name)
            tag("dd", value)
    return found


def copy_button(text: str, label: str, about: str = "") -> Tag:
    """Add a button that copies a text in the browser, without a request."""
    return tag("button", label, "small", type="button", data_copy=text, aria_label=about or None)


def banner(text: str, tone: str, role: str | None = None) -> Tag:
    """Add a message. tone: good, warning or critical."""
    return tag("p", text, f"banner {tone}", role=role)


def say(text: str) -> None:
    """Announce what was done: to screen readers, and in the corner of the page."""
    ui.run_javascript(f"window.quothSay({json.dumps(text)})")
