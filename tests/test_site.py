"""The site of `tools/docs`: every document, the Python API, and no link that leads nowhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("pdoc", reason="pdoc is not installed: pip install 'quoth[docs]'")

ROOT = Path(__file__).parent.parent
API = {
    "quoth": ("Client", "Client.publish", "Producer.send", "QuothError"),
    "quoth/aio": ("Client", "Client.publish"),
    "quoth/tracing": ("consuming", "context_of", "with_context", "headers_from_http"),
    "quothlog": ("Log.append", "Writer", "Reader"),
    "quothwire/errors": ("CODES", "QuothError"),
    "quothd": ("Broker.start", "Config"),
    "pytest_quoth": ("quoth_client",),
}
"""Some names that the reference of a module has."""


class Page(HTMLParser):
    """The ids and the links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an id, a link, the address of a script or an image."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            if (tag, name) in (("a", "href"), ("link", "href"), ("script", "src"), ("img", "src")) and value:
                self.links.add(value)


def test_site_has_every_document_the_public_names_and_no_broken_link(tmp_path: Path) -> None:
    """One test, since each worker with a part of it would build the site."""
    subprocess.run(
        [sys.executable, str(ROOT / "tools/site/build.py"), str(tmp_path)], check=True, timeout=110
    )
    pages = {path: Page(path.read_text("utf-8")) for path in tmp_path.rglob("*.html")}
    links = [(path, link) for path, page in pages.items() for link in page.links]
    assert [f"{path.name}: {link}" for path, link in links if not leads(link, path, pages)] == []
    expected = {"client-concepts.html", "broker-design.html", "tools-quothbench-benchmarks.html"}
    assert expected <= {path.name for path in pages}
    start = pages[tmp_path / "index.html"]
    assert {"broker-design.html", "systemd-operations.html", "api/index.html"} <= start.links
    for module, names in API.items():
        page = pages[tmp_path / "api" / f"{module}.html"]
        assert [name for name in names if name not in page.ids] == [], module


def leads(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    """True if a link of a page is absolute, or leads to a file and a place in it that exist."""
    parts = urlsplit(link)
    if parts.scheme:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not parts.fragment or target not in pages:
        return target.is_file()
    return unquote(parts.fragment) in pages[target].ids
