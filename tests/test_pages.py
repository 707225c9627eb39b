"""Rules for what people read: pages in Markdown, and the messages of the programs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "_build" not in path.parts  # what the documentation is built into
)
TEXTS = [
    *PAGES,
    ROOT / "Makefile",
    *(path for folder in ("src", "sims") for kind in ("*.py", "Dockerfile*") for path in (ROOT / folder).rglob(kind)),
]

NO_TEXT = re.compile(r"(?<!!)\[\s*\]\(")
"""A link without a text: Sphinx fills in the title of the page, and GitHub shows nothing."""

FROM_A_REGISTRY = re.compile(r"pip install\b[^`\n]*?[ '\"](?<!of )iriscw\b")
"""iriscw is on no registry: whoever takes its name there would be installed. ``of iriscw`` belongs to a checkout."""


def found(pattern, paths):
    """Return each place where a pattern stands."""
    texts = ((path, path.read_text(encoding="utf-8")) for path in paths)
    return [
        f"{path.relative_to(ROOT)}:{text[: each.start()].count(chr(10)) + 1}: {each[0]}"
        for path, text in texts
        for each in pattern.finditer(text)
    ]


def test_links_have_texts():
    """Each link says where it leads, also to who reads the page as it is written."""
    assert len(PAGES) > 40
    assert found(NO_TEXT, PAGES) == []


def test_nothing_is_installed_by_a_name_that_is_not_ours():
    """What installs iriscw does so from a checkout."""
    assert len(TEXTS) > 500
    assert found(FROM_A_REGISTRY, TEXTS) == []


@pytest.mark.parametrize(
    ("pattern", "text", "bad"),
    [
        (NO_TEXT, "see [](tasks.md)", True),
        (NO_TEXT, "see [ ](tasks.md#gpus)", True),
        (NO_TEXT, "see [tasks](tasks.md)", False),
        (NO_TEXT, "![](picture.svg)", False),
        (FROM_A_REGISTRY, "pip install iriscw", True),
        (FROM_A_REGISTRY, "env/bin/pip install --upgrade numpy 'iriscw[s3]'", True),
        (FROM_A_REGISTRY, "uv pip install iriscw==1.0", True),
        (FROM_A_REGISTRY, "pip install '.[s3]' in a checkout of iriscw", False),
        (FROM_A_REGISTRY, "uv pip install --python /opt/iriscw .", False),
        (FROM_A_REGISTRY, "`pip install numpy`, `iriscw up`", False),
    ],
)
def test_the_rules(pattern, text, bad):
    """Each rule finds what it is there for, and leaves its neighbour alone."""
    assert bool(pattern.search(text)) == bad
