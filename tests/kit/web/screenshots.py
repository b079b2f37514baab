"""Takes pictures of all pages: `PYTHONPATH=tests python -m kit.web.screenshots URL FOLDER`.

URL: of a running `quoth web` without tokens. Three pictures a page: light, dark, and on a phone. The pages
of a topic and a group are those of the first ones that the gateway lists.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx

from kit.web.browsers import NARROW, WIDE, WatchedBrowser, chromium, serious_findings

MODES = {"light": (WIDE, False), "dark": (WIDE, True), "phone": (NARROW, False)}
PAGES = {
    "overview": "", "topics": "topics", "groups": "groups", "rules": "rules", "transactions": "transactions",
    "connections": "connections", "configuration": "configuration",
}  # fmt: skip


def pages(url: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the path of each page, with those of a topic and a group."""
    yield from PAGES.items()
    with httpx.Client(base_url=f"{url}/api/v1") as client:
        topics = [name for name in client.get("/topics").json()["topics"] if not name.startswith("quoth.")]
        with_groups = [
            name for name in topics if client.get(f"/topics/{quote(name, safe='')}/groups").json()["groups"]
        ]
        topic = quote((with_groups or topics)[0], safe="")
        newest = client.get(f"/topics/{topic}").json()["last"]
        yield "topic", f"topic/{topic}"
        yield "browse", f"topic/{topic}/records?record={newest}"
        yield "tail", f"topic/{topic}/tail"
        yield "search", f"topic/{topic}/search?q=a&from=-1h"
        for group in client.get(f"/topics/{topic}/groups").json()["groups"][:1]:
            yield "group", f"topic/{topic}/group/{quote(group['group'], safe='')}"


def main(url: str, folder: Path) -> None:
    """Take all pictures, and print what axe-core finds on each page."""
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name, path in pages(url.rstrip("/")):
            for mode, (width, dark) in MODES.items():
                watched = WatchedBrowser(browser)
                page = watched.open(f"{url.rstrip('/')}/{path}", width=width, dark=dark)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=folder / f"{name}-{mode}.png", full_page=True)
                print(name, mode, serious_findings(page) or "no findings", *watched.problems)
                watched.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
