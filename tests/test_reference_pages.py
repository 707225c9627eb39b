"""How the pages of the reference show what the code says: `docs/conf.py`."""

import importlib.util
import inspect
from pathlib import Path

import attrs
import pytest

import iriscw

CONF = Path(__file__).parents[1] / "docs" / "conf.py"


@pytest.fixture(scope="module")
def conf():
    """What builds the pages."""
    spec = importlib.util.spec_from_file_location("iriscw_docs_conf", CONF)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_defaults_are_shown_as_they_are(conf):
    """Of values that attrs makes, whose generated source names the place of a default instead."""
    from sphinx.ext.autodoc.preserve_defaults import update_default_value

    shown = {}
    for name in iriscw.__all__:
        value = getattr(iriscw, name)
        if not (isinstance(value, type) and attrs.has(value)):
            continue
        before = dict(vars(value.__init__))
        try:
            update_default_value(value.__init__, False)  # as Sphinx does, before it asks us
            conf.show_defaults_of_attrs(None, value.__init__, False)
            shown[name] = str(inspect.signature(value.__init__))
        finally:
            vars(value.__init__).clear()
            vars(value.__init__).update(before)
    assert len(shown) > 10
    assert [text for text in shown.values() if "attr_dict" in text or "NOTHING" in text] == []
    assert "reason: 'str' = ''" in shown["TaskStatus"]
    assert "labels: 'Mapping[str, str]' = {}" in shown["Checkpoint"]
