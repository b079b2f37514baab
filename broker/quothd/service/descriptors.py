"""The limit of this process on open files, pipes and connections together: RLIMIT_NOFILE.

Most systems start programs with a soft limit of 1,024 for the sake of `select`, which neither the broker nor
libzmq calls, and allow them to raise it to the hard limit.
"""

from __future__ import annotations

import resource

from quothd.service.log_events import note

DESCRIPTORS_LOW = 4_096
"""Below this the daemon warns: half of it holds the topics that may be active by default, with some room."""
DESCRIPTORS_MOST = 2**20
"""Reported where there is no limit: the largest that Linux allows by default."""
TOPIC_DESCRIPTORS = 5
"""Of an active topic: two for its log, two for that of its groups, and one while it writes an index."""


def descriptors_max() -> int:
    """Return how many descriptors this process may have open at the same time. Any thread."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return DESCRIPTORS_MOST if soft == resource.RLIM_INFINITY else min(soft, DESCRIPTORS_MOST)


def topics_that_fit(workers_max: int) -> int:
    """Return how many topics may be active: `workers_max`, or as many as half of the descriptors hold.

    The other half is for connections. Without it a topic could be opened only when a client leaves.
    """
    return max(1, min(workers_max, descriptors_max() // 2 // TOPIC_DESCRIPTORS))


def raise_descriptors() -> None:
    """Raise the soft limit to the hard one, for this process and those that it starts; log a low limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as problem:  # macOS: sysctl kern.maxfilesperproc is lower than the limit
            note("descriptors_low", descriptors=descriptors_max(), problem=problem)
            return
    if descriptors_max() < DESCRIPTORS_LOW:
        note("descriptors_low", descriptors=descriptors_max())
