"""Every page: it has its content, for screen readers and keyboards too, in light, in dark and on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import eventually
from kit.web.browsers import NARROW, WatchedBrowser, connected, serious_findings
from kit.web.servers import WebProcess

from ..conftest import StartWeb

RULES = 'topics = ["orders"]\n[[rule]]\nname = "all"\nto = "copies"\n'


class PageCase(NamedTuple):
    """A page. heading: of level 1. content: texts that have to be there."""

    path: str
    heading: str
    content: tuple[str, ...]


PAGES = (
    PageCase("/", "Overview", ("Disk", "Worst group lag", "Records in", "Alarms", "Busiest topics")),
    PageCase("/topics", "Topics", ("orders", "written", "Name contains")),
    PageCase("/topic/orders", "Topic orders", ("billing", "durability", "Segments and log", "whole broker")),
    PageCase("/topic/orders/records", "Topic orders", ("value 99", "Oldest", "Copy as command")),
    PageCase("/topic/orders/tail", "Topic orders", ("Pause", "Waiting for records.")),
    PageCase("/topic/orders/search?q=value%207&from=begin", "Topic orders", ("value 71", "11 found")),
    PageCase("/groups", "Groups", ("billing", "orders", "runs")),
    PageCase("/topic/orders/group/billing", "Group billing", ("Members", "not wanted", "max_attempts")),
    PageCase("/rules", "Rules", ("routing", "Rule file")),
    PageCase("/transactions?topic=orders&application=app&version=1", "Transactions", ("unknown.",)),
    PageCase("/connections", "Connections & keys", ("open now", "need no token")),
    PageCase("/configuration", "Configuration", ("poll_interval", "--poll-interval", "batch_bytes_max")),
    PageCase("/nothing/here", "No such page", ("All topics",)),
    PageCase("/topic/nothing", "Topic nothing", ("There is no such topic",)),
)


@pytest.fixture(scope="module")
def filled(broker: BrokerProcess) -> str:
    """Fill a broker with something for each page to show; returns its URL."""
    with quoth.connect(broker.url) as client:
        keys = [b"key %d" % (number % 7) for number in range(100)]
        client.publish("orders", [b"value %d" % number for number in range(100)], key=keys)
        with client.group("orders", "billing", max_attempts=1) as member:
            for message in member.fetch(3):
                message.term("not wanted")
        eventually(lambda: client.groups("orders")[0].dead == 3, "the dead letters are written")
        client.publish("quoth.rules", RULES.encode(), key=b"routing", headers={"action": b"set"})
    return broker.url


@pytest.fixture(scope="module")
def pages(filled: str) -> Iterator[WebProcess]:
    """Start a server that asks the broker often."""
    with WebProcess(url=filled, poll_interval=0.2).running() as web:
        yield web


@pytest.mark.parametrize("case", PAGES, ids=lambda case: case.path)
def test_page_serves_everyone(pages: WebProcess, browser: WatchedBrowser, case: PageCase) -> None:
    page = browser.open(pages.url + case.path)
    expect(page.get_by_role("heading", level=1)).to_have_text(case.heading)
    for text in case.content:
        expect(page.get_by_role("main")).to_contain_text(text)
    for landmark in ("banner", "navigation", "main"):
        assert page.get_by_role(landmark).count() >= 1, f"there is a landmark {landmark}"
    assert page.evaluate("document.documentElement.lang") == "en-US"
    assert "Quoth" in page.title()
    assert serious_findings(page) == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": NARROW, "height": 844})
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
    assert serious_findings(page) == [], "in dark, on a phone"


def test_keyboard_reaches_the_content_and_leaves_it(pages: WebProcess, browser: WatchedBrowser) -> None:
    page = browser.open(pages.url + "/topics")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    page.keyboard.type("orders.billing")
    expect(page.get_by_role("main")).to_contain_text("1 topics")
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(focused(page))
        if focused(page) == "":
            break
    assert {"Records", "orders.billing.dead"} <= seen
    assert "" in seen, "the focus leaves the page at its end"


def focused(page: Page) -> str:
    """Return the text of the element that has the focus, "" for the page itself."""
    script = "document.activeElement === document.body ? '' : document.activeElement.innerText || 'a field'"
    return str(page.evaluate(script)).strip()


def test_menu_of_a_phone_opens_and_closes_by_keyboard(pages: WebProcess, browser: WatchedBrowser) -> None:
    page = browser.open(pages.url, width=NARROW)
    menu = page.get_by_role("button", name="Menu")
    link = page.get_by_role("link", name="Topics", exact=True)
    expect(link).not_to_be_visible()
    menu.press("Enter")
    expect(link).to_be_visible()
    assert focused(page) == "Overview"
    page.keyboard.press("Escape")
    expect(link).not_to_be_visible()
    assert focused(page) == "Menu"
    menu.click()
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")


def test_theme_follows_the_system_until_it_is_chosen(pages: WebProcess, browser: WatchedBrowser) -> None:
    page = browser.open(pages.url, dark=True)
    theme = page.locator("html")
    expect(theme).to_have_attribute("data-theme", "dark")
    button = page.get_by_role("button", name="Dark")
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    expect(theme).to_have_attribute("data-theme", "light")
    page.goto(pages.url + "/topics")
    connected(page)
    expect(theme).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Dark").click()
    page.emulate_media(color_scheme="light")
    expect(theme).to_have_attribute("data-theme", "light")


def test_figures_are_live(pages: WebProcess, browser: WatchedBrowser, filled: str, topic: str) -> None:
    page = browser.open(pages.url)
    with quoth.connect(filled) as client:
        client.publish(topic, b"a")
        expect(page.get_by_role("main")).to_contain_text(topic)
    chart = page.get_by_role("img", name="Records: in")
    chart.focus()
    page.keyboard.press("Home")
    expect(page.locator(".chart .moment").first).to_contain_text("UTC")


def test_one_publish_among_silence_is_a_dot_in_the_chart(
    start_broker: StartBroker, start_web: StartWeb, browser: WatchedBrowser
) -> None:
    broker = start_broker()
    page = browser.open(start_web(broker.url).url)
    chart = page.locator(".chart", has_text="Time of a publish")
    expect(chart).to_contain_text("No publishes yet")
    records = page.locator(".chart", has_text="Records").locator("path.line-0").first
    expect(records).to_have_attribute("d", re.compile("L"))  # there are samples
    expect(chart).to_contain_text("No publishes yet")
    with quoth.connect(broker.url) as client:
        client.publish("t", [b"a"])
    expect(chart).not_to_contain_text("No publishes yet")
    dot = chart.locator("path.dots.line-0")
    expect(dot).to_have_attribute("d", re.compile(r"^M[^ML]*h0$"))
    assert dot.evaluate("(path) => path.isPointInStroke(path.getPointAtLength(0))")
    expect(records).to_have_attribute("d", re.compile(r"^M[^M]*$"))
    expect(page.locator(".chart", has_text="Records").locator("path.dots.line-0")).to_have_attribute("d", "")


def test_pages_are_left_out_if_the_configuration_says_so(broker: BrokerProcess, start_web: StartWeb) -> None:
    web = start_web(broker.url, dashboard=False)
    with web.client() as client:
        assert client.get(f"{web.url}/").status_code == 404
        assert client.get("/topics").status_code == 200
