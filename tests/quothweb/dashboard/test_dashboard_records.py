"""The records of a topic: browsed, looked at, searched and followed, and never executed as HTML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import msgpack
import pytest
from playwright.sync_api import Locator, Page, expect

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.deadlines import eventually
from kit.web.browsers import WatchedBrowser, connected, table_column
from kit.web.servers import WebProcess
from quoth import Client
from quothweb.dashboard.records.record_text import SHOWN_BYTES_MAX, best_view, preview, view_of
from quothwire.pointer import to_text

from ..conftest import StartWeb

HOSTILE = (
    "<img src=x onerror=alert(1)>{{constructor.constructor('alert(2)')()}}</script><script>alert(3)</script>"
)


@pytest.fixture(scope="module")
def pages(broker: BrokerProcess) -> Iterator[WebProcess]:
    """Start a server for the tests of this file."""
    with WebProcess(url=broker.url, poll_interval=0.2).running() as web:
        yield web


def values(page: Page) -> Locator:
    """Find the values in the table of records."""
    return table_column(page, "Records", 2)


def test_pages_lead_forward_and_back_without_a_gap(
    pages: WebProcess, browser: WatchedBrowser, client: Client, topic: str
) -> None:
    records = [f"{number:03}" for number in range(130)]
    for begin in range(0, 130, 13):
        client.publish(topic, [record.encode() for record in records[begin : begin + 13]])
    page = browser.open(f"{pages.url}/topic/{topic}/records")
    expect(values(page)).to_have_text(records[80:])
    for name, begin in (("Previous 50", 30), ("Oldest", 0), ("Next 50", 50), ("Next 50", 100)):
        page.get_by_role("link", name=name).click()
        expect(values(page)).to_have_text(records[begin : begin + 50])


def test_links_name_a_time_a_pointer_a_span_and_a_record(
    pages: WebProcess, browser: WatchedBrowser, client: Client, topic: str
) -> None:
    ack = client.publish(topic, [b"a", b"b", b"c"])
    for place in (to_text(ack.first + 1), str(ack.first + 1)):
        page = browser.open(f"{pages.url}/topic/{topic}?at={place}")
        assert page.url.startswith(f"{pages.url}/topic/{topic}/records?at=")
        expect(values(page), place).to_have_text(["b", "c"])
    page = browser.open(f"{pages.url}/topic/{topic}/records?at=-15m")
    expect(values(page)).to_have_text(["a", "b", "c"])
    page.get_by_role("button", name=to_text(ack.first)).click()
    detail = page.get_by_role("region", name="Record", exact=True)
    expect(detail).to_contain_text(f"Record {ack.first}")
    expect(page).to_have_url(re.compile(f"record={ack.first}"))
    page.reload()
    expect(detail).to_contain_text(f"Record {ack.first}")
    page.goto(f"{pages.url}/topic/{topic}/records?at=yesterday")
    expect(page.get_by_role("main")).to_contain_text("is neither a pointer nor a time")
    page.goto(f"{pages.url}/topic/{topic}/records?at=1&record={ack.last + 1}")
    expect(page.get_by_role("main")).to_contain_text("holds no record")


def test_time_slider_and_calendar_move_the_page(
    pages: WebProcess, browser: WatchedBrowser, client: Client, topic: str
) -> None:
    first = client.publish(topic, b"old").first
    last = client.publish(topic, b"new").last
    page = browser.open(f"{pages.url}/topic/{topic}/records")
    expect(values(page)).to_have_text(["old", "new"])
    field, slider = page.get_by_label("Begin at"), page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("End")
    expect(field).to_have_value(to_text(last))
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_contain_text("1 record shown")
    expect(values(page)).to_have_text(["new"])
    connected(page)
    slider.focus()
    page.keyboard.press("Home")
    expect(field).to_have_value(to_text(first))
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.get_by_role("main")).to_contain_text("2 records shown")
    connected(page)
    page.get_by_label("Date and time").fill("2100-01-02T03:04:05")
    expect(field).to_have_value("2100-01-02T03:04:05Z")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.get_by_role("main")).to_contain_text("No record lies at this place")


def test_removed_records_are_shown_as_a_gap(
    pages: WebProcess, browser: WatchedBrowser, client: Client, topic: str
) -> None:
    first = client.publish(topic, [b"a", b"b"]).first
    client.roll(topic)
    client.trim(topic, client.publish(topic, b"c").first)
    page = browser.open(f"{pages.url}/topic/{topic}/records?at={first + 1}")
    expect(page.get_by_role("main")).to_contain_text("were removed by retention or a trim")
    expect(values(page).last).to_have_text("c")


def test_hostile_bytes_and_names_are_text(pages: WebProcess, browser: WatchedBrowser, client: Client) -> None:
    """The browser of the test fails it for any dialog, error or request to another machine."""
    topic = HOSTILE.replace("/", "_")
    evil = HOSTILE.encode()
    ack = client.publish(topic, [evil, evil], key=evil, headers={HOSTILE: evil})
    with client.group(topic, "<b>group", max_attempts=1) as member:
        member.fetch(1)[0].term(HOSTILE)
    name = quote(topic, safe="")
    paths = (
        "topics?search=img", f"topic/{name}", f"topic/{name}/records?at=1&record={ack.first}&view=text",
        f"topic/{name}/search?q={quote(HOSTILE)}&from=begin", f"topic/{name}/tail", "groups",
        f"topic/{name}/group/%3Cb%3Egroup", "", f"topics?search={quote(HOSTILE)}",
        f"transactions?topic={name}&application={quote(HOSTILE)}&version=1",
    )  # fmt: skip
    for path in paths:
        page = browser.open(f"{pages.url}/{path}")
        assert page.locator("img, main script, b:text-is('group')").count() == 0, path
    page = browser.open(f"{pages.url}/topic/{name}/records?at=1&record={ack.first}&view=text")
    assert page.locator("pre.text").inner_text() == HOSTILE
    assert topic in page.get_by_role("heading", level=1).inner_text()


def test_value_has_several_views_that_can_be_copied(
    pages: WebProcess, browser: WatchedBrowser, client: Client, topic: str
) -> None:
    packed = msgpack.packb({"total": 7, "raw": b"\xff"})
    first = client.publish(topic, [b'{"b": [1, 2]}', packed, b"\xff\xfe"], headers={"trace": b"\x00id"}).first
    page = browser.open(f"{pages.url}/topic/{topic}/records?at=1&record={first}")
    detail = page.get_by_role("region", name="Record", exact=True)
    assert json.loads(detail.locator("pre").inner_text()) == {"b": [1, 2]}
    expect(detail).to_contain_text("\\x00id")
    detail.get_by_role("button", name="Copy value").click()
    expect(page.locator("#said")).to_have_text("Copied")
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == {"b": [1, 2]}
    detail.get_by_role("button", name="Hex").click()
    expect(detail.locator("pre")).to_contain_text("7b 22 62 22")
    detail.get_by_role("button", name="Copy as command").click()
    page.wait_for_function(
        f"navigator.clipboard.readText().then((text) => text.includes('quoth get {topic}'))"
    )
    page = browser.open(f"{pages.url}/topic/{topic}/records?record={first + 1}")
    expect(page.locator("pre.msgpack")).to_contain_text('"raw": "ff"')
    page = browser.open(f"{pages.url}/topic/{topic}/records?record={first + 2}&view=json")
    expect(page.get_by_role("main")).to_contain_text("Shown as hex, since it is no JSON")


def test_search_is_bounded_and_goes_on(
    pages: WebProcess, browser: WatchedBrowser, client: Client, topic: str
) -> None:
    client.publish(topic, [b"needle %d" % number for number in range(150)], key=b"Key")
    page = browser.open(f"{pages.url}/topic/{topic}/search")
    page.get_by_role("searchbox").fill("needle")
    page.get_by_role("button", name="Search", exact=True).click()
    status = page.get_by_role("main").get_by_role("status").last
    expect(status).to_contain_text("100 found")
    page.get_by_role("button", name="Go on", exact=True).click()
    expect(status).to_contain_text("150 found. The end is reached.")
    page = browser.open(f"{pages.url}/topic/{topic}/search?q=kEY&in=key&case=ignore&from=begin")
    expect(page.get_by_role("main")).to_contain_text("100 found")
    page = browser.open(f"{pages.url}/topic/{topic}/search?q=kEY&in=value&from=begin&to=now")
    expect(page.get_by_role("main")).to_contain_text("0 found. The end is reached.")
    page = browser.open(f"{pages.url}/topic/{topic}/search?q=a&from=tomorrow")
    expect(page.get_by_role("alert")).to_contain_text("is neither a pointer nor a time")


def test_updates_of_a_page_keep_what_is_typed(
    pages: WebProcess, browser: WatchedBrowser, client: Client, topic: str
) -> None:
    client.publish(topic, [b"a", b"b"])
    page = browser.open(f"{pages.url}/topic/{topic}/search")
    state = page.get_by_role("main").locator(".badge").first
    expect(state).to_have_text("hibernates")
    page.get_by_role("searchbox").fill("typed")
    page.get_by_label("From").fill("-1d")

    def is_active() -> bool:
        client.publish(topic, b"c")
        return state.inner_text() == "active"

    eventually(is_active, "the page shows it before it hibernates again")
    expect(state).to_have_text("hibernates")
    expect(page.get_by_role("searchbox")).to_have_value("typed")
    expect(page.get_by_label("From")).to_have_value("-1d")


def test_tail_follows_and_pauses_without_a_loss(
    pages: WebProcess, browser: WatchedBrowser, client: Client, topic: str
) -> None:
    client.publish(topic, b"before")
    page = browser.open(f"{pages.url}/topic/{topic}/tail")
    main = page.get_by_role("main")
    expect(main).to_contain_text("follows the topic")
    client.publish(topic, b"first")
    expect(main).to_contain_text("first")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(main).to_contain_text("paused")
    client.publish(topic, [b"second", b"third"])
    page.get_by_role("button", name="Go on", exact=True).click()
    expect(main).to_contain_text("third")
    expect(table_column(page, "Newest records", 2)).to_have_text(["third", "second", "first"])
    client.publish(topic, [b"%d" % number for number in range(300)])
    expect(main).to_contain_text("303 records came, the last 200 are kept")
    expect(table_column(page, "Newest records")).to_have_count(200)


def test_tail_goes_on_when_the_broker_is_back(
    start_broker: StartBroker, start_web: StartWeb, browser: WatchedBrowser
) -> None:
    broker = start_broker()
    with quoth.connect(broker.url) as client:
        client.publish("orders", b"before")
    web = start_web(broker.url, poll_interval=0.2, timeout=1)
    page = browser.open(f"{web.url}/topic/orders/tail")
    main = page.get_by_role("main")
    expect(main).to_contain_text("follows the topic")
    broker.kill()
    expect(main).to_contain_text("The broker does not answer")
    broker.restart()
    with quoth.connect(broker.url) as client:
        client.publish("orders", b"after")
    expect(page.get_by_role("region", name="Newest records")).to_contain_text("after")


def test_looking_changes_nothing(
    pages: WebProcess, browser: WatchedBrowser, client: Client, topic: str
) -> None:
    client.publish(topic, b"a")
    with client.group(topic, "g") as member:
        member.fetch(1)[0].ack()
    before = client.topics(), client.groups(topic)[0]._replace(idle=0.0)
    for path in ("", "/records", "/tail", "/search?q=a", "/group/g"):
        browser.open(f"{pages.url}/topic/{topic}{path}")
    for path in (
        f"/topic/{topic}-not-there",
        f"/topic/{topic}-not-there/tail",
        f"/topic/{topic}/group/other",
    ):
        browser.open(pages.url + path)
    assert (client.topics(), client.groups(topic)[0]._replace(idle=0.0)) == before


def test_payloads_are_hidden_if_the_server_says_so(
    broker: BrokerProcess, start_web: StartWeb, browser: WatchedBrowser, client: Client, topic: str
) -> None:
    web = start_web(broker.url, payloads=False)
    first = client.publish(topic, b"SECRET value", key=b"SECRET key", headers={"SECRET": b"SECRET"}).first
    with client.group(topic, "g", max_attempts=1) as member:
        member.fetch(1)[0].term("SECRET reason")
    for path in (f"records?at=1&record={first}", "search?q=SECRET&from=begin", "tail", "group/g", ""):
        page = browser.open(f"{web.url}/topic/{topic}/{path}".rstrip("/"))
        content = page.content().replace("q=SECRET", "").replace('value="SECRET"', "")
        assert "SECRET" not in content, path
    page = browser.open(f"{web.url}/topic/{topic}/records")
    expect(table_column(page, "Records", 1)).to_have_text(["12 B"])
    expect(page.get_by_role("main")).to_contain_text("payloads is off")


@pytest.mark.parametrize(
    ("value", "best", "wrong"),
    [
        (b"plain", "text", {"json": "no JSON", "msgpack": "no MessagePack"}),
        (b"[1]", "json", {}),
        (b"\x81\xa1a\x01", "msgpack", {"json": "no JSON"}),
        (b"\xff" * 5, "hex", {"text": "not UTF-8: byte 0 is ff"}),
        (b"[" * 100_000, "text", {"json": "no JSON"}),
        (b"", "text", {}),
    ],
)
def test_views_of_values(value: bytes, best: str, wrong: dict[str, str]) -> None:
    assert best_view(value) == best
    for name, problem in wrong.items():
        assert problem in view_of(name, value).problem
    assert view_of("hex", value).problem == ""


def test_long_and_invisible_text_is_cut_and_escaped() -> None:
    long = "ä".encode() * SHOWN_BYTES_MAX
    found = view_of("text", long)
    assert len(found.text) == SHOWN_BYTES_MAX // 2
    assert found.left_out == len(long) - SHOWN_BYTES_MAX
    assert view_of("text", b"a\x1b[2J\xe2\x80\xaeb").text == "a\\x1b[2J\\u202eb"
    assert preview(b"a\nb\x00\xff") == "a\\x0ab\\x00\\xff"
    assert len(preview(b"x" * 1_000)) == 121
