"""Writes the man pages of the commands as Markdown for go-md2man, out of what `quoth reference` prints.

    SOURCE_DATE_EPOCH=0 python manuals.py VERSION DIRECTORY < REFERENCE.md
    SOURCE_DATE_EPOCH=0 python manuals.py VERSION DIRECTORY quoth-web < HELP

Each command of `quoth` has a page with the commands below it: `quoth topic create` is in quoth-topic.1. The
page of the daemon has the options of `quoth serve`, which are the same. The page of another program is made
of what its option --help prints, in lines of any length.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping
from os import environ
from pathlib import Path

_OPERATIONS = {
    "/usr/share/doc/quoth/OPERATIONS.md": "How to operate, monitor, back up, upgrade and secure a broker."
}
FILES = {
    "quothd": {
        "/etc/quoth/quothd.toml": "The configuration: every key with its default and its reason.",
        "/var/lib/quoth": "The records. No package removes them.",
        **_OPERATIONS,
    },
    "quoth-web": {"/etc/quoth/quoth-web.toml": "The configuration.", **_OPERATIONS},
}
"""What the pages of the services say of files."""
HEADINGS = {
    "Exit statuses:": "# EXIT STATUS",
    "Options that many commands take, before the command or behind it:": "# COMMON OPTIONS",
}
"""Lines of the introduction, and the headings that the page of `quoth` has in their place."""
_ROW = re.compile(r"^\| `(.+?)` \| (.*) \|$", re.MULTILINE)
_TABLE = re.compile(r"\| (\w+) \| \|\n\| --- \| --- \|\n((?:\|.*\n)+)")


def pages(text: str, version: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each man page. text: the page of all commands."""
    introduction, *parts = re.split(r"^## (?=quoth)", text, flags=re.MULTILINE)
    entries = {name: content.strip() + "\n" for name, _, content in (one.partition("\n") for one in parts)}
    commands = [name for name in entries if name.count(" ") == 1]
    related = ", ".join(f"**{name.replace(' ', '-')}**(1)" for name in commands)
    top = {"quoth": entries["quoth"]}
    yield "quoth.1", page(version, top, common(introduction), f"{related}, **quothd**(8)")
    for name in commands:
        own = {one: entry for one, entry in entries.items() if one == name or one.startswith(f"{name} ")}
        yield f"{name.replace(' ', '-')}.1", page(version, own, "", "**quoth**(1), **quothd**(8)")
    yield service(version, "quothd", entries["quoth serve"].replace("quoth serve", "quothd"))


def service(version: str, name: str, entry: str) -> tuple[str, str]:
    """Return the name and the content of the page of a service."""
    files = f"# FILES\n\n{definitions(FILES[name])}"
    return f"{name}.8", page(version, {name: entry}, files, "**quoth**(1), **systemctl**(1)")


def entry_of(text: str) -> str:
    """Make an entry, as the page of all commands has it, of what a program's option --help prints."""
    usage, *blocks = text.strip().split("\n\n")
    (options,) = (one for one in blocks if one.startswith("options:"))
    rows: list[list[str]] = []
    for line in options.splitlines()[1:]:
        if line.startswith("  -"):
            rows.append(re.split(r"\s{2,}", line.strip(), maxsplit=1))
        else:
            rows[-1].append(line.strip())
    table = [
        "| option | |",
        "| --- | --- |",
        *(f"| `{name}` | {' '.join(text)} |" for name, *text in rows),
        "",
    ]
    synopsis = f"```\n{usage.removeprefix('usage: ').partition(' ')[0]} [OPTIONS]\n```"
    return "\n\n".join([*(one for one in blocks if one is not options), synopsis, "\n".join(table)])


def page(version: str, entries: Mapping[str, str], appendix: str, related: str) -> str:
    """Make a man page. entries: of the command itself first, then of those below it."""
    (command, own), *below = entries.items()
    name, section = command.replace(" ", "-"), 8 if command in FILES else 1
    day = time.strftime("%Y-%m-%d", time.gmtime(int(environ["SOURCE_DATE_EPOCH"])))
    sentence = plain(own.partition("\n")[0]).rstrip(".")
    blocks = [
        f'% {name} {section} "{day}" "Quoth {version}" "Manual of Quoth"',
        f"# NAME\n\n{name} - {sentence}",
        f"# DESCRIPTION\n\n{described(own, '#')}",
        *(f"# {one}\n\n{described(entry, '###')}" for one, entry in below),
        appendix,
        f"# SEE ALSO\n\n{related}\n",
    ]
    return "\n\n".join(blocks)


def described(entry: str, level: str) -> str:
    """Return an entry with headings of a level. Its tables become lists of definitions."""
    text = _TABLE.sub(lambda found: f"{level} {found[1].upper()}S\n\n{rows(found[2])}", entry)
    text = text.replace("```sh\n", f"{level} EXAMPLES\n\n```sh\n")
    return plain(text.replace("Common options: ", "Common options, which **quoth**(1) explains: "))


def common(introduction: str) -> str:
    """Return what the page of all commands says before the first one, with headings."""
    text = _TABLE.sub(lambda found: rows(found[2]), introduction)
    for line, heading in HEADINGS.items():
        assert line in text, line
        text = text.replace(line, heading)
    return plain(text[text.index("# EXIT STATUS") :])


def rows(table: str) -> str:
    """Return the rows of a table as a list of definitions."""
    return definitions(dict(_ROW.findall(table)))


def definitions(meanings: Mapping[str, str]) -> str:
    return "\n".join(f"**{name}**\n: {meaning}\n" for name, meaning in meanings.items())


def plain(text: str) -> str:
    """Undo what is escaped for HTML and in tables. No line of prose begins with a request of troff."""
    return re.sub(r"\n(?=['.]\w)", " ", text.replace("&lt;", r"\<").replace(r"\|", "|"))


def main() -> None:
    """Write all pages."""
    version, directory, *programs = sys.argv[1:]
    text = sys.stdin.read()
    found = [service(version, name, entry_of(text)) for name in programs] or pages(text, version)
    for name, content in found:
        (Path(directory) / f"{name}.md").write_text(content, "utf-8")


if __name__ == "__main__":
    main()
