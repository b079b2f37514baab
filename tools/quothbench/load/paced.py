"""A steady load, a program with the arguments READY URL TOPIC RATE SIZE.

It publishes so many records a second until it is ended.
"""

from __future__ import annotations

import sys
import time

import quoth

STEP_S = 0.01


def main() -> None:
    """Publish until the process is ended."""
    ready, url, topic, rate, size = sys.argv[1:]
    value, step = b"x" * int(size), max(1, round(float(rate) * STEP_S))
    with quoth.connect(url) as client, client.producer(topic) as producer:
        producer.send(value)
        producer.flush()
        print(f"{ready}{url}", flush=True)
        due = time.monotonic()
        while True:
            for _ in range(step):
                producer.send(value)
            due += STEP_S
            time.sleep(max(0.0, due - time.monotonic()))
