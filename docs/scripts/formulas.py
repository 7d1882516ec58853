"""Formulas of the site, as a hook of mkdocs: TeX becomes MathML when the site is built, so that no script draws it."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.S)
DISPLAYED = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.S)
BEFORE = {  # what the converter does not know, in words that it knows
    r"\\arg(?![a-zA-Z])": r"\\operatorname{arg}\\,",
    r"\\operatorname\*": r"\\operatorname",
    r"\\begin\{aligned\}": r"\\begin{array}{rlll}",
    r"\\begin\{gathered\}": r"\\begin{array}{c}",
    r"\\end\{(aligned|gathered)\}": r"\\end{array}",
}
AFTER = {
    r">\\[lr]Vert<": ">‖<",
    r">\\\{<": ">{<",
    r">\\\}<": ">}<",
    r"\\_": "_",
    r"<mtable": '<mtable displaystyle="true"',
    r' columnalign="(\w+)"': r' class="\1"',  # for the style sheet: browsers read neither this
    r' mathvariant="(monospace|sans-serif)"': r' class="\1"',  # nor this
}
LETTERS = {  # that browsers draw only where they have a character of their own
    ("script", "L"): "ℒ",
    ("script", "N"): "𝒩",
    ("script", "S"): "𝒮",
    ("double-struck", "E"): "𝔼",
    ("double-struck", "R"): "ℝ",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Blocks that open with ```math are formulas."""
    fence = {"name": "math", "class": "arithmatex", "format": displayed}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    return config


def displayed(source: str, *_: object, **__: object) -> str:
    """A fenced formula, as arithmatex would leave it."""
    return f'<div class="arithmatex">\\[{html.escape(source, quote=False)}\\]</div>'


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns the formulas of a page into MathML."""
    content = INLINE.sub(lambda found: mathml(found[1], "inline", page), content)
    return DISPLAYED.sub(lambda found: f'<div class="formula">{mathml(found[1], "block", page)}</div>', content)


def mathml(source: str, display: str, page: Page) -> str:
    """A formula in MathML; an error names the page of one that the converter does not understand."""
    tex = html.unescape(source).strip()
    for old, new in BEFORE.items():
        tex = re.sub(old, new, tex)
    try:
        made = convert(tex, display=display)
    except Exception as error:
        raise PluginError(f"{page.file.src_uri}: a formula cannot be drawn: {source}") from error
    for old, new in AFTER.items():
        made = re.sub(old, new, made)
    letter = lambda found: f"<mi>{LETTERS.get(found.groups(), found[0])}</mi>"
    made = re.sub(r'<mi mathvariant="(script|double-struck)">(\w)</mi>', letter, made)
    if "\\" in made or "&amp;" in made or re.search(r'mathvariant="(?!normal)', made):
        raise PluginError(f"{page.file.src_uri}: a formula cannot be drawn: {source}\n{made}")
    return made
