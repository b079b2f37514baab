"""The version of this distribution. Reading the installed metadata takes longer than most commands."""

from __future__ import annotations

VERSION = "0.1.0"
