"""The version of this distribution. Asking the installed one for it takes longer than most commands."""

from __future__ import annotations

VERSION = "0.1.0"
