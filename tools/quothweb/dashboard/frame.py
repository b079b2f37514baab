"""The frame of all pages: the bar with the state of the broker, the navigation, the theme."""

from __future__ import annotations

from nicegui import context, ui
from nicegui.element import Element

from quoth.monitoring.alarms import Severity, lag_seconds, worst
from quothweb.dashboard import figures
from quothweb.dashboard.markup import Tag, banner, link, tag
from quothweb.dashboard.view import PageView

NAVIGATION = (
    ("", "Overview"),
    ("topics", "Topics"),
    ("groups", "Groups"),
    ("rules", "Rules"),
    ("transactions", "Transactions"),
    ("connections", "Connections & keys"),
    ("configuration", "Configuration"),
)
"""The first part of a path, and its name."""
TONES = {
    Severity.FINE: ("fine", "good"),
    Severity.WARNING: ("warning", "warning"),
    Severity.CRITICAL: ("critical", "critical"),
    Severity.UNKNOWN: ("unknown", "warning"),
}


def frame(view: PageView, title: str, current: str) -> None:
    """Build the frame of a page. current: its entry in the navigation. The content comes behind it."""
    ui.page_title(f"{title} - Quoth")
    client = context.client
    main = client.content.parent_slot.parent if client.content.parent_slot else client.content
    main.props["id"] = "main"
    main.props["tabindex"] = -1
    with client.layout:
        parts = [
            tag("a", "Skip to the content", "skip", href="#main"),
            _bar(view),
            _navigation(view, current),
        ]
        tag("div", id="said", role="status")
    for place, part in enumerate(parts):
        part.move(target_index=place)
    notice = banner("", "critical", role="status")
    view.live(lambda: notice.set_text(_notice(view)))
    ui.timer(view.observer.interval, view.refresh, immediate=False)


def _bar(view: PageView) -> Element:
    with tag("header", classes="top") as bar:
        tag("button", "Menu", id="menu", type="button", aria_controls="nav", aria_expanded="false")
        link("Quoth", view.url(""), "brand")
        tag("span", view.config.url, "broker")
        state = tag("span", classes="badge")
        with tag("dl", classes="figures"):
            shown = {name: _figure(name) for name in ("Disk free", "Records in", "Worst lag", "Alarms")}
        tag("button", "Dark", id="theme", type="button", aria_pressed="false")
        if view.principal.name:
            with tag("form", method="post", action=view.url("logout")):
                tag("button", f"Log out {view.principal.name}")
    view.live(lambda: _show_state(view, state))
    view.live(lambda: _show_figures(view, shown))
    return bar


def _figure(name: str) -> Tag:
    with tag("div"):
        tag("dt", name)
        return tag("dd")


def _show_state(view: PageView, state: Tag) -> None:
    observer = view.observer
    if observer.failure is not None:
        seen = f", seen {figures.span(int(observer.age))} ago" if observer.rounds else ""
        text, tone = f"unreachable{seen}", "critical"
    elif observer.metrics_problem is not None:
        text, tone = "no metrics", "warning"
    elif not observer.rounds:
        text, tone = "not asked yet", "warning"
    else:
        text, tone = TONES[worst(observer.alarms())]
    state.set_text(text)
    state.classes(replace=f"badge {tone}")


def _show_figures(view: PageView, shown: dict[str, Tag]) -> None:
    observer = view.observer
    counters = observer.metrics.counters if observer.metrics is not None else {}
    shown["Disk free"].set_text(figures.size(counters.get("disk_free_bytes")))
    samples = observer.history.broker
    shown["Records in"].set_text(figures.rate(samples[-1].rates.records_in) if samples else figures.NONE)
    lags = [lag_seconds(group, view.now) for _, group in observer.lagging_groups()]
    shown["Worst lag"].set_text(figures.span(max(lags, default=0.0)))
    shown["Alarms"].set_text(f"{len(observer.alarms()):,}")


def _notice(view: PageView) -> str:
    """Return what is wrong with all that pages show, "" for nothing."""
    observer = view.observer
    if observer.failure is None:
        if observer.metrics_problem is None:
            return ""
        what = "Pages show neither topics nor figures; the HTTP gateway works."
        return f"The broker answers, but tells no metrics ({observer.metrics_problem.text}). {what}"
    what = f"It last answered {figures.span(int(observer.age))} ago; figures are of that time."
    if not observer.rounds:
        what = "It has not answered yet, so there is nothing to show."
    return f"The broker does not answer ({observer.failure.text}). {what}"


def _navigation(view: PageView, current: str) -> Element:
    with tag("nav", id="nav", classes="nav", aria_label="Pages") as navigation, tag("ul"):
        for path, name in NAVIGATION:
            with tag("li"):
                link(name, view.url(path), aria_current="page" if path == current else None)
    return navigation
