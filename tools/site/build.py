"""Builds the site: the project's documents and the reference of the Python API, as static HTML.

    python build.py DIRECTORY

pdoc makes the reference from docstrings, and its renderer the HTML of the documents. A document that another
one names in code, like `broker/FORMAT.md`, becomes a link.
"""

from __future__ import annotations

import posixpath
import re
import sys
import warnings
from html import escape
from importlib import import_module
from pathlib import Path

import pdoc
from pdoc.render_helpers import to_html

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = {
    "README.md": "Start",
    "client/CONCEPTS.md": "Concepts",
    "client/GROUPS.md": "Groups",
    "client/TRACING.md": "Traces",
    "systemd/OPERATIONS.md": "Operations",
    "systemd/SECURITY.md": "Security",
    "broker/quothrules/RULES.md": "Rules",
    "client/python/quoth/spark/README.md": "Spark",
    "client/python/quoth/spark/archive/README.md": "Archives",
    "client/c/README.md": "C",
    "client/examples/README.md": "Examples",
    "tools/REFERENCE.md": "Commands",
    "client/PROTOCOL.md": "Protocol",
    "broker/FORMAT.md": "Format",
    "broker/DESIGN.md": "Design",
    "tools/quothbench/BENCHMARKS.md": "Benchmarks",
    "CHANGELOG.md": "Changes",
}
"""The documents and their names in the navigation."""
MODULES = ("quoth", "quoth.aio", "quoth.tracing", "quothlog", "quothwire.errors", "quothd", "pytest_quoth")
API = "api/index.html"
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }}
nav a {{ margin-right: 1em; white-space: nowrap; }}
pre {{ background: #f4f4f4; overflow-x: auto; padding: .7em; line-height: 1.25; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
td, th {{ border: 1px solid #ccc; padding: .2em .5em; text-align: left; vertical-align: top; }}
</style>
</head>
<body>
<nav>{navigation}</nav>
<main>
{content}
</main>
</body>
</html>
"""


def main(directory: Path) -> None:
    """Build the site in a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for path, title in DOCUMENTS.items():
        page = PAGE.format(title=f"Quoth: {title}", navigation=navigation(), content=content(path))
        (directory / page_name(path)).write_text(page, encoding="utf-8")
    for name in MODULES:
        load(name)
    warnings.filterwarnings("ignore", "Error parsing type annotation")  # names that only type checkers import
    pdoc.render.configure(docformat="markdown", footer_text="Quoth", show_source=False)
    pdoc.pdoc(*MODULES, output_directory=directory / "api")
    print(f"{directory}/index.html")


def navigation() -> str:
    """Return a link to each document and to the reference of the API."""
    pages = {page_name(path): title for path, title in DOCUMENTS.items()} | {API: "Python API"}
    return "\n".join(f'<a href="{page}">{escape(title)}</a>' for page, title in pages.items())


def content(path: str) -> str:
    """Return a document as HTML whose links lead to pages of the site."""
    html = to_html((ROOT / path).read_text(encoding="utf-8"))

    def link(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        return f'href="{page_name(found)}{"#" + anchor if anchor else ""}"'

    html = re.sub(r'href="((?!https?:)[^"#]+\.md(?:#[^"]*)?)"', link, html)
    for other in DOCUMENTS.keys() - {path}:
        html = html.replace(f"<code>{other}</code>", f'<a href="{page_name(other)}"><code>{other}</code></a>')
    return html


def page_name(path: str) -> str:
    """Return the file of a document: `client/c/README.md` is `client-c.html`."""
    name = path.removesuffix(".md").removesuffix("README").strip("/")
    return f"{name.lower().replace('/', '-') or 'index'}.html"


def load(name: str) -> None:
    """Load all public names of a module: pdoc would miss those that are loaded when they are first used."""
    module = import_module(name)
    for public in getattr(module, "__all__", ()):
        setattr(module, public, getattr(module, public))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
