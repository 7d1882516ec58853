"""The documentation site builds without a complaint, shows what it should, and loads nothing from elsewhere."""

from __future__ import annotations

import html
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(
    path.parent.name for path in ROOT.glob("src/majorant/*/__init__.py") if path.parent.name not in ("app", "cli")
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built as `make docs` builds it: broken links, orphans and formulas that cannot be drawn are errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {"NO_MKDOCS_2_WARNING": "1"}
    made = subprocess.run(command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


def test_every_page_and_figure_is_there(site):
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in ROOT.glob("docs/**/*.md")]
    results = [Path("reproductions", f"{path.parent.name}.html") for path in ROOT.glob("reproductions/*/README.md")]
    results += [Path("reproductions", "fedem-deep.html")]
    figures = [f"reproductions/{path.parts[-3]}-{path.name}" for path in ROOT.glob("reproductions/*/figures/*.png")]
    assert len(results) >= 4
    assert figures
    for place in [*pages, *results, *figures, "contributing.html", "changelog.html"]:
        assert (site / place).is_file(), place


def test_every_formula_is_drawn(site):
    sources = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("reproductions/*/*.md")]
    written = sum(path.read_text(encoding="utf-8").count("```math\n") for path in sources)
    pages = [path.read_text(encoding="utf-8") for path in site.glob("**/*.html")]
    assert sum(page.count('display="block"') for page in pages) == written > 50
    assert not any("arithmatex" in page for page in pages)


def test_pages_load_nothing_from_elsewhere(site):
    for path in site.glob("**/*.html"):
        page = path.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]+)"|<link[^>]* href="([^"]+)"', page)
        outside = [address for pair in loaded for address in pair if re.match(r"(https?:)?//", address)]
        assert not outside, f"{path.name} loads {outside}"


def test_the_reference_has_every_public_name(site):
    """Every package has a page, and every name that it offers has a place on one of them."""
    pages = [path.read_text(encoding="utf-8") for path in site.glob("reference/*.html")]
    places = {name.rpartition(".")[2] for page in pages for name in re.findall(r'id="(majorant\.[\w.]+)"', page)}
    for package in PACKAGES:
        assert (site / "reference" / f"{package}.html").is_file()
        names = getattr(importlib.import_module(f"majorant.{package}"), "__all__", [])
        assert not set(names) - places, package


def test_examples_and_fields_are_blocks_of_code(site):
    """Doctests stand in blocks, not as quotations; records show their fields with the comments."""
    methods = (site / "reference" / "methods.html").read_text(encoding="utf-8")
    assert "<blockquote>" not in methods
    core = re.sub(r"<[^>]+>", "", (site / "reference" / "core.html").read_text(encoding="utf-8"))
    assert "how many of the n rows are real" in html.unescape(core)
    for path in site.glob("reference/*.html"):
        text = re.sub(r"<pre.*?</pre>|<code.*?</code>", "", path.read_text(encoding="utf-8"), flags=re.S)
        assert "&gt;&gt;&gt;" not in text, path.name
        assert "====" not in text, path.name
        assert not re.search(r"`\w+`", re.sub(r"<[^>]+>", "", text)), path.name
