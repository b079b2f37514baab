"""A sensor that survives reboots and flaky links: the part to copy to a device.

    python device.py readings                                              one service: it measures
    quoth forward readings tcp://broker:5555 --topic readings --trim       another one: it sends

Both may end at any moment; let the system restart them (`Restart=always`). A reading is on the disk `FLUSH_S`
after it was taken. There it waits for a link, however long that takes, and leaves the disk once the broker
has it on its own. It arrives once, behind those before it:

    {"start": 3, "number": 17, "at": 1767323045.25, "celsius": 21.48}      the 17th one since the third start
"""

import json
import math
import sys
import time
from itertools import count

from quothlog import Log, LogOptions, Writer

PER_SECOND = 200
FLUSH_S = 0.25
DISK = LogOptions(size_limit=64 * 2**10, disk_free_min=2**20)
"""What was sent leaves the disk in files of this size. So much of the disk is left free."""


def main(directory: str) -> None:
    """Measure until the power fails. Prints which readings survive that: `3 17` for all up to this one."""
    with Log.open(f"{directory}.starts") as starts:  # a log counts
        starts.append(b"")
        starts.sync()
        start = starts.end_ordinal
    began, safe = time.monotonic(), 0
    with Writer(directory, flush_records=1_000, flush_seconds=FLUSH_S, options=DISK) as writer:
        for number in count(1):
            writer.write(reading(start, number))
            if number - safe >= PER_SECOND * FLUSH_S:
                writer.flush()
                safe = number
                print(start, safe, flush=True)
            time.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))


def reading(start: int, number: int) -> bytes:
    """Return the value of a record."""
    at = round(time.time(), 3)
    celsius = round(20 + 5 * math.sin(at / 60), 2)
    return json.dumps({"start": start, "number": number, "at": at, "celsius": celsius}).encode()


if __name__ == "__main__":
    main(sys.argv[1])
