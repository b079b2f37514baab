"""Groups: what is shown of them, and what may be done with them, which is nothing without `allow_actions`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from playwright.sync_api import Page, expect
from starlette.requests import Request

from kit.broker.brokers import BrokerProcess
from kit.client.records import values
from kit.deadlines import eventually
from kit.web.browsers import WatchedBrowser, table_column
from kit.web.servers import WebProcess
from quoth import Client
from quoth.groups.letters.dead_letters import HANDLED
from quothweb.config import read
from quothweb.dashboard.actions import require_actions
from quothweb.dashboard.view import PRINCIPAL, PageView
from quothweb.problems import HttpProblem
from quothweb.services import WebServices

from ..conftest import StartWeb

CHANGES = ("Pause", "Resume", "Move", "Delete", "Retry", "Drop", "Retry all shown", "Drop all shown")


@pytest.fixture(scope="module")
def pages(broker: BrokerProcess) -> Iterator[WebProcess]:
    """Start a server that allows actions."""
    with WebProcess(url=broker.url, poll_interval=0.2, allow_actions=True).running() as web:
        yield web


@pytest.fixture
def buried(client: Client, topic: str) -> str:
    """Make a topic whose group has three dead letters and a record that is left; returns its name."""
    client.publish(topic, [b"a", b"b", b"c", b"d"])
    with client.group(topic, "g", max_attempts=1) as member:
        for message in member.fetch(3):
            message.term(f"reason {message.value.decode()}")
    eventually(lambda: client.groups(topic)[0].dead == 3, "there are three letters")
    return topic


def confirm(page: Page, name: str, effect: str, text: str | None = None) -> None:
    """Press a button, read what it asks, and say yes."""
    page.get_by_role("button", name=name, exact=True).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(effect)
    if text is not None:
        field = dialog.get_by_role("textbox")
        expect(field).to_have_value("end")
        field.fill(text)
    dialog.locator("button").first.press("Enter")


def test_groups_are_sorted_by_the_server(
    pages: WebProcess, browser: WatchedBrowser, client: Client, topic: str
) -> None:
    client.publish(topic, [b"a"] * 5)
    for name, count in (("slow", 0), ("fast", 5), ("middle", 2)):
        with client.group(topic, name) as member:
            for message in member.fetch(count) if count else ():
                message.ack()
            member.info()
    page = browser.open(f"{pages.url}/groups?search={topic}&sort=records")
    expect(page.get_by_role("main")).to_contain_text("3 groups")
    expect(table_column(page, "Groups")).to_have_text(["slow", "middle", "fast"])
    page.get_by_role("button", name="Records behind").press("Enter")
    expect(page.get_by_role("columnheader", name="Records behind")).to_have_attribute(
        "aria-sort", "ascending"
    )
    expect(table_column(page, "Groups")).to_have_text(["fast", "middle", "slow"])
    expect(page).to_have_url(re.compile("down=0"))
    page.get_by_role("link", name="slow").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Group slow")


def test_without_allow_actions_nothing_can_be_done(
    broker: BrokerProcess, start_web: StartWeb, browser: WatchedBrowser, buried: str
) -> None:
    web = start_web(broker.url)
    page = browser.open(f"{web.url}/topic/{buried}/group/g")
    expect(table_column(page, "Dead letters", 4)).to_have_text(["reason a", "reason b", "reason c"])
    for name in CHANGES:
        assert page.get_by_role("button", name=name, exact=True).count() == 0, name
    assert page.locator("dialog").count() == 0


@pytest.mark.parametrize("allowed", [False, True])
def test_handlers_check_the_permission_again(allowed: bool) -> None:
    services = WebServices(read({"allow_actions": allowed}, {}), None)
    view = PageView(Request({"type": "http", "quothweb": services, PRINCIPAL: services.access.server}))
    with pytest.raises(HttpProblem, match="actions_off") if not allowed else nullcontext():
        require_actions(view)


def test_letters_are_retried_and_dropped(
    pages: WebProcess, browser: WatchedBrowser, client: Client, buried: str
) -> None:
    page = browser.open(f"{pages.url}/topic/{buried}/group/g")
    page.get_by_role("button", name="Retry letter").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("Publishes the record again at the end of topic")
    page.get_by_role("button", name="Cancel").last.click()
    assert len(values(client, buried)) == 4
    page.get_by_role("button", name="Retry letter").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Yes").click()
    expect(page.locator("#said")).to_contain_text("1 letters were retried")
    assert values(client, buried) == [b"a", b"b", b"c", b"d", b"a"]
    expect(table_column(page, "Dead letters", 4)).to_have_text(["reason b", "reason c"])
    confirm(page, "Drop all shown", "without a retry", None)
    expect(page.locator("#said")).to_contain_text("2 letters were dropped")
    expect(page.get_by_role("main")).to_contain_text("No dead letter is left.")
    assert client.group(f"{buried}.g.dead", HANDLED, create=False).lag().records == 0
    assert len(values(client, buried)) == 5


def test_group_is_paused_moved_and_deleted(
    pages: WebProcess, browser: WatchedBrowser, client: Client, buried: str
) -> None:
    group = client.group(buried, "g", create=False)
    page = browser.open(f"{pages.url}/topic/{buried}/group/g")
    confirm(page, "Pause", "gets a record until it is resumed")
    expect(page.locator("main .badge")).to_have_text("paused")
    assert group.info().paused
    confirm(page, "Resume", "get records again")
    expect(page.locator("main .badge")).to_have_text("runs")
    confirm(page, "Move", "No lease and no ack of before has any effect", "begin")
    expect(page.locator("#said")).to_contain_text("goes on at begin")
    assert group.info().lag == 4
    confirm(page, "Move", "No lease", "not a place")
    expect(page.locator("#said")).to_contain_text("Not done")
    confirm(page, "Delete", "The records of the topic stay")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Topic {buried}")
    assert client.groups(buried) == []
    assert len(values(client, buried)) == 4
