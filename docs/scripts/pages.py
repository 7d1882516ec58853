"""Pages of the site that are more than a file under docs/, as hooks of mkdocs.

- Pages whose source lies elsewhere (the results beside their experiments, CONTRIBUTING, CHANGELOG) join the site, with
  their figures. In every page, links between files of the repository become links between pages of the site.
- A reference page says ``::: majorant.methods``. That line becomes one for each module of the package, with the names
  that the package offers.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"} | {
    path.relative_to(ROOT).as_posix(): f"reproductions/{path.parent.name}-{path.stem}.md".replace("-README", "")
    for path in sorted(ROOT.glob("reproductions/*/*.md"))
}
FIGURES = {
    path.relative_to(ROOT).as_posix(): f"reproductions/{path.parts[-3]}-{path.name}"
    for path in sorted(ROOT.glob("reproductions/*/figures/*.png"))
}
PLACES = OUTSIDE | FIGURES | {"README.md": "index.md"}  # a path in the repository → its place in the site
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")
PACKAGE = re.compile(r"^::: (majorant\.\w+)$", re.M)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages and figures from outside docs/."""
    for source, place in (OUTSIDE | FIGURES).items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links of the repository into links of the site, and packages into their modules."""
    place = page.file.src_uri
    source = next((path for path, at in OUTSIDE.items() if at == place), f"docs/{place}")
    markdown = PACKAGE.sub(lambda found: reference(found[1]), markdown)
    return outside_fences(markdown, lambda text: LINK.sub(lambda link: site_link(link, source, place), text))


def outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """Changes the text of a page and leaves its code alone."""
    code = FENCE.findall(markdown)
    texts = [change(text) for text in FENCE.split(markdown)]
    return "".join(text + fence for text, fence in zip(texts, [*code, ""], strict=True))


def site_link(link: re.Match[str], source: str, place: str) -> str:
    """A link of a page, to a file of the repository, as a link between two places of the site.

    >>> link = LINK.search("[data](../../docs/data.md#a-table)")
    >>> site_link(link, "reproductions/fedem/README.md", "reproductions/fedem.md")
    '](../data.md#a-table)'
    """
    target = os.path.normpath(PurePosixPath(source).parent / link[1])
    there = PLACES.get(target, target.removeprefix("docs/"))
    return f"]({os.path.relpath(there, PurePosixPath(place).parent)}{link[2] or ''})"


def reference(package: str) -> str:
    """Lines for mkdocstrings: every module of a package, with the names that the package offers from it."""
    lines = []
    for module, names in exports(package).items():
        lines += [f"::: {module}"]
        if names is not None:
            lines += ["    options:", f"      members: [{', '.join(names)}]"]
        lines += [""]
    return "\n".join(lines)


def exports(package: str) -> dict[str, list[str] | None]:
    """The modules that a package's ``__init__`` imports from, and which names; None: all that are public."""
    folder = ROOT / "src" / package.replace(".", "/")
    found: dict[str, list[str] | None] = {}
    for node in ast.parse((folder / "__init__.py").read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(package):
            continue
        names = [alias.name for alias in node.names]
        if node.module == package:  # whole modules
            found |= dict.fromkeys(f"{package}.{name}" for name in names)
        elif names == ["*"]:
            found[node.module] = None
        elif (ROOT / "src" / node.module.replace(".", "/")).is_dir():
            below = exports(node.module)
            found |= {
                module: [n for n in own if n in names] for module, own in below.items() if own and {*own} & {*names}
            }
        else:
            found[node.module] = [*(found.get(node.module) or []), *names]
    public = [path.stem for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")]
    return found or dict.fromkeys(f"{package}.{name}" for name in public)
