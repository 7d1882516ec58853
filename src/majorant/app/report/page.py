"""The shell of every page: one file with its look, its script and its data, which loads nothing and runs nothing else.

The page's own policy lets a browser run one script, ours, and load nothing: a text that got past the escaping would
still do nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib import resources
from typing import Any

from majorant.app._text import html_text as escape
from majorant.app.files import strict_json


def asset(name: str) -> str:
    """A file beside this one."""
    return resources.files("majorant.app.report").joinpath("assets", name).read_text(encoding="utf-8")


def shell(title: str, body: str, data: dict[str, Any], footer: str) -> str:
    """A page around its body; ``data`` is what the script shows on demand."""
    script = asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{asset("report.css")}</style>
</head>
<body>
<main>
{body}
<footer>{escape(footer)}</footer>
</main>
<script type="application/json" id="data">{inert(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def framed(head: str, rows: Iterable[str], *, kind: str = "sortable", around: str = "scroll") -> str:
    """A table that scrolls sideways where it is wider than the page; a head of cells, and whole rows."""
    marked = f' class="{kind}"' if kind else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="{around}"><table{marked}>{body}</table></div>'


def inert(data: Any) -> str:
    r"""JSON that cannot end the element it stands in.

    >>> inert({"name": "</script>"})
    '{"name": "\\u003c/script>"}'
    """
    return strict_json(data).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
