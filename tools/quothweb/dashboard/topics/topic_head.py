"""The head of the pages of a topic: its name, its state, and the way to its other pages."""

from __future__ import annotations

from quothweb.dashboard.markup import link, tag
from quothweb.dashboard.records.record_text import printable
from quothweb.dashboard.topics.topic_list import state_of
from quothweb.dashboard.view import PageView

TABS = (("", "Figures"), ("records", "Browse"), ("tail", "Live tail"), ("search", "Search"))


def topic_head(view: PageView, topic: str, current: str) -> None:
    """Add the head. current: the last part of the path of the page."""
    with tag("div", classes="row"):
        with tag("h1", "Topic "):
            tag("bdi", printable(topic))
        state = tag("span", classes="badge")
    with tag("nav", classes="tabs", aria_label="Pages of the topic"):
        for path, name in TABS:
            parts = (path,) if path else ()
            link(name, view.topic_url(topic, *parts), aria_current="page" if path == current else None)

    def refresh() -> None:
        text, tone = state_of(view.observer.topics.get(topic, {}))
        state.set_text(text)
        state.classes(replace=f"badge {tone}")

    view.live(refresh)
