"""Prints what the file `copyright` of a Debian package says of the packages of Python in it.

    python licences.py SITE-PACKAGES PLACE

PLACE is where the folder will be. A package without a licence is an error.
"""

from __future__ import annotations

import re
import sys
from email import message_from_string
from email.message import Message
from pathlib import Path

_TEXT = re.compile(r"(licen[cs]e|copying|notice|authors)", re.IGNORECASE)


def licence(metadata: Message) -> str:
    """Return the name of a licence, from the newest field that has it."""
    classifiers = [one for one in metadata.get_all("Classifier", []) if one.startswith("License ::")]
    for found in (metadata["License-Expression"], *classifiers, metadata["License"]):
        name = str(found or "").rpartition(" :: ")[2]
        if name and "\n" not in name and name != "OSI Approved":
            return name
    raise SystemExit(f"the metadata of {metadata['Name']} name no licence")


def main() -> None:
    """Print a paragraph for each package."""
    folder, place = map(Path, sys.argv[1:])
    for path in sorted(folder.glob("*.dist-info"), key=lambda one: one.name.lower()):
        metadata = message_from_string((path / "METADATA").read_text("utf-8"))
        if metadata["Name"] != "quoth":
            print(f"\n{metadata['Name']} {metadata['Version']}: {metadata['Summary']}")
            print(f"Licence: {licence(metadata)}")
            for text in sorted(path.rglob("*")):
                if text.is_file() and _TEXT.match(text.name):
                    print(f"  {place / text.relative_to(folder)}")


if __name__ == "__main__":
    main()
