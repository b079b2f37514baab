"""Pauses, resumes, moves and deletes a group, for pages that may."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from quoth.groups.options import place
from quothweb.dashboard.actions import Action
from quothweb.dashboard.markup import tag
from quothweb.dashboard.view import PageView
from quothwire.protocol.group_messages import GroupInfo


def group_actions(
    view: PageView, topic: str, group: str, info: GroupInfo, reload: Callable[[], Awaitable[None]]
) -> None:
    """Add the controls; none if the server allows no actions."""
    if not view.config.allow_actions:
        return
    is_cursor = info.settings.get("mode") == "cursor"

    async def pause(_: str) -> str:
        await view.ask(lambda client: client.group(topic, group, create=False).pause())
        await reload()
        return f"Group {group} is paused."

    async def resume(_: str) -> str:
        await view.ask(lambda client: client.group(topic, group, create=False).resume())
        await reload()
        return f"Group {group} goes on."

    async def seek(where: str) -> str:
        place(where)
        await view.ask(lambda client: client.group(topic, group, create=False).seek(where.strip()))
        await reload()
        return f"Group {group} goes on at {where}."

    async def delete(_: str) -> str:
        await view.ask(lambda client: client.group(topic, group, create=False).delete())
        ui.navigate.to(view.topic_url(topic))
        return f"Group {group} is deleted."

    named = f"group {group} of topic {topic}"
    with tag("div", classes="row", role="group", aria_label="Actions"):
        if not is_cursor:
            hands_out = f"No member of {named} gets a record until it is resumed. Leases and acks go on."
            Action(view, "Pause", f"Pause {named}?", hands_out, pause)
            Action(view, "Resume", f"Resume {named}?", f"Members of {named} get records again.", resume)
        moved = (
            f"The members of {named} go on at this place: all records from there on are handed out, those in "
            "front of it are not. No lease and no ack of before has any effect."
        )
        field = ("begin, end, a pointer or a time like -15m", "end")
        Action(view, "Move", f"Move {named}?", moved, seek, field=field, is_dangerous=True)
        gone = (
            f"Deletes {named}: what it has finished, its {info.pending:,} pending records and its settings. "
            "The records of the topic stay, and so do its dead letters."
        )
        Action(view, "Delete", f"Delete {named}?", gone, delete, is_dangerous=True)
