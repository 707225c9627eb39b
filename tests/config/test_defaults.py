"""Every default, in one place."""

import pytest

from iriscw.config.defaults import CONTROLLER_OF, PLUGIN_SLICE_DEFAULTS, POOL_DEFAULTS, cluster_defaults, group_defaults
from iriscw.config.kinds import Section, Sections
from iriscw.config.model import ClusterConfig, CoreweaveSliceConfig, PlatformKind, PluginSliceConfig, ScaleGroupConfig
from iriscw.config.schema import keys


def check(model, tree):
    """Each name of a tree is an attribute, each value one that the key's kind would read back."""
    by_name = {known.name: known for known in keys(model).values()}
    for name, value in tree.items():
        kind = by_name[name].kind
        if isinstance(kind, Section):
            check(kind.model, value)
        elif not isinstance(kind, Sections):
            assert kind.read(kind.write(value)) == value, name


@pytest.mark.parametrize("kind", list(PlatformKind))
def test_defaults_fit_the_model(kind):
    """No default has a name or a value that a file could not have."""
    check(ClusterConfig, cluster_defaults(kind, CONTROLLER_OF[kind]))
    check(ScaleGroupConfig, group_defaults(kind))
    check(CoreweaveSliceConfig, POOL_DEFAULTS)
    check(PluginSliceConfig, PLUGIN_SLICE_DEFAULTS)


@pytest.mark.parametrize("kind", list(PlatformKind))
def test_defaults_are_given_anew(kind):
    """Whoever changes a tree of defaults changes only that one."""
    first = cluster_defaults(kind, CONTROLLER_OF[kind])
    first["defaults"]["timeouts"].clear()
    first["platform"][kind.value].clear()
    assert cluster_defaults(kind, CONTROLLER_OF[kind])["defaults"]["timeouts"]
    assert cluster_defaults(kind, CONTROLLER_OF[kind])["platform"][kind.value]
