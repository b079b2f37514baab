"""A viewer of pages, a program with the arguments URL SECONDS RATE PATH...

It requests one page after the other, so many in a second, over one connection, and prints the seconds that
each took as one line of JSON when it ends.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from itertools import cycle


def main() -> None:
    """View pages for a time. Exits with a message for an answer that is no page."""
    url, seconds, rate, *paths = sys.argv[1:]
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    took: dict[str, list[float]] = {path: [] for path in paths}
    end, due = time.monotonic() + float(seconds), time.monotonic()
    for path in cycle(paths):
        began = time.monotonic()
        connection.request("GET", path, headers={"Accept": "text/html"})
        response = connection.getresponse()
        body = response.read()
        if response.status != 200 or b"<html" not in body[:1_000].lower():
            sys.exit(f"{path}: {response.status} {body[:200]!r}")
        now = time.monotonic()
        took[path].append(now - began)
        due += 1 / float(rate)
        if now >= end:
            break
        time.sleep(max(0.0, due - now))
    print(json.dumps(took))
