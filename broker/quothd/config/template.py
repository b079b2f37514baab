"""The configuration of the daemon as a TOML file."""

from __future__ import annotations

from quothd.config.config import SCHEMA
from quothwire.config import template

_HEAD = """\
# Quoth's configuration: every key with its default. To change one, remove the # before it.
# Arguments win over the environment (QUOTH_ and the key in capitals), which wins over this file.
# A span of time is text like "7d", "1h30m", "500ms" or a number of seconds. A size is text like "1GiB",
# "10MB" or a number of bytes. "infinity" stands for no limit.
#
#   quothd --check --config FILE        checks a file
#   quoth config show --config FILE     prints every value and its origin
#
# The service passes --dir /var/lib/quoth, which wins over the key `dir`.
# SIGHUP (systemctl reload quothd) reads the file again. A key with "(at a restart)" needs a restart.
"""


def text() -> str:
    """Return the file, with every key commented out."""
    return template.text(SCHEMA, _HEAD)
