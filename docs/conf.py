"""How the documentation is built: ``make docs``, where a warning is an error."""

import builtins
import collections.abc
import importlib.util
import inspect
import re
import sys
import typing
from pathlib import Path

import attrs
from docutils import nodes
from docutils.statemachine import StringList
from pygments.lexers import TextLexer
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.highlighting import lexers
from sphinx.util.docutils import SphinxDirective

import iriscw

project = "iriscw"
author = "the iriscw authors"
copyright = "the iriscw authors, Apache-2.0"  # noqa: A001 - Sphinx's name for it
version = release = iriscw.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "changes/*"]
nitpicky = True

lexers["mermaid"] = TextLexer()  # who reads a page where it lies sees the diagram, and here its text

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# References that point outside of this site: it is built without the network.
nitpick_ignore_regex = [
    ("py:.*", r"(anyio|attrs?|builtins|click|collections|concurrent|contextlib|datetime|enum|os|pathlib|pytest)\..*"),
    ("py:.*", r"(hypothesis|random|types|typing)\..*"),
    ("py:.*", "|".join((*dir(builtins), *typing.__all__, *collections.abc.__all__, "Path", "Random"))),
]

html_theme = "furo"
html_title = "iriscw"
html_show_sphinx = False
html_copy_source = False

KINDS = ("removed", "deprecated", "security", "added", "changed", "fixed")
"""The order in which a reader needs them: first what may break."""


class Fragments(SphinxDirective):
    """Show the fragments under ``changes/`` that no release holds yet, grouped by kind."""

    def run(self) -> list[nodes.Node]:
        """Parse the fragments as part of the page."""
        folder = Path(self.env.srcdir) / "changes"
        self.env.note_dependency(str(folder))
        by_kind: dict[str, list[Path]] = {}
        for path in sorted(folder.glob("*.*.md")):
            by_kind.setdefault(path.name.split(".")[1], []).append(path)
        lines: list[str] = []
        for kind in KINDS:
            if kind in by_kind:
                lines += ["", f"**{kind.capitalize()}**", ""]
                lines += [_as_item(path.read_text(encoding="utf-8")) for path in by_kind[kind]]
        text = "\n".join(lines) or "Nothing yet."
        parent = nodes.Element()
        self.state.nested_parse(StringList(text.splitlines(), source="changes"), 0, parent)
        return parent.children


def _as_item(text: str) -> str:
    """Make one list item of a fragment."""
    return "- " + " ".join(text.split())


PAGE = re.compile(r"[a-z]+(-[a-z]+)*")
PUBLIC = {
    name: package
    for package in ("iriscw.testing", "iriscw.runtime", "iriscw")
    for name in getattr(importlib.import_module(package), "__all__", ())
}


def leave_out_missing_pages(app: Sphinx, page: str, content: list[str]) -> None:
    """Let the index name pages that come with a later change. One that no index names is a warning anyway."""
    if page == "index":
        kept = [line for line in content[0].splitlines() if not PAGE.fullmatch(line) or line in app.env.found_docs]
        content[0] = "\n".join(kept)


def find_public_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.TextElement
) -> nodes.Element | None:
    """Link ``iriscw.errors.MailboxFull``, or the bare name, to where the public name is documented.

    What is ours but not public becomes text without a link; what does not exist at all stays a warning.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    name = target.rpartition(".")[2]
    if name in PUBLIC:
        python = env.get_domain("py")
        found = python.resolve_xref(env, node["refdoc"], app.builder, "obj", f"{PUBLIC[name]}.{name}", node, content)
        return found or content
    ours = [module for path, module in sys.modules.items() if path.startswith("iriscw")]
    if any(hasattr(module, name) for module in ours):
        return content
    is_module = target.startswith("iriscw.") and importlib.util.find_spec(target.rpartition(".")[0]) is not None
    return content if is_module and importlib.util.find_spec(target) is not None else None


def _whole_description(self: GoogleDocstring) -> tuple[str, list[str]]:
    return "", self.__class__(self._consume_to_end(), self._config).lines()


# Napoleon reads the docstring of a property as "type: description". Ours are sentences, and those may hold a colon.
GoogleDocstring._consume_inline_attribute = _whole_description  # type: ignore[method-assign]


def show_defaults_of_attrs(_app: Sphinx, documented: typing.Any, _bound: bool) -> None:
    """Show the defaults of a class that attrs made as what they are: its source only says where attrs keeps them."""
    code = getattr(documented, "__code__", None)
    if code is None or not code.co_filename.startswith("<attrs generated"):
        return
    known = {each.alias: each.default for each in documented.__globals__["attr_dict"].values()}
    signature = inspect.signature(documented)
    shown = [
        each if each.default is each.empty else each.replace(default=_made(known[name]))
        for name, each in signature.parameters.items()
    ]
    documented.__signature__ = signature.replace(parameters=shown)


def _made(default: typing.Any) -> typing.Any:
    if not isinstance(default, attrs.Factory):
        return default
    return ... if default.takes_self else default.factory()


def setup(app: Sphinx) -> None:
    """Register what this file defines."""
    app.add_directive("fragments", Fragments)
    app.connect("source-read", leave_out_missing_pages)
    app.connect("missing-reference", find_public_name)
    app.connect("autodoc-before-process-signature", show_defaults_of_attrs, priority=900)  # behind Sphinx's own look
