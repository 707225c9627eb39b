"""Settings that make no sense are refused."""

import pytest

from iriscw._errors import InvalidArgument
from iriscw.cloud.kube import words
from iriscw.cloud.kube.settings import GroupSettings, KubeSettings, Taint


@pytest.mark.parametrize(
    "change",
    [{"page_limit": 0}, {"attempts": -1}, {"patience": 0}, {"pause_least": 10, "pause_most": 9}, {"qps": 0.0}],
)
def test_limits_that_cannot_be(change):
    """A limit is positive, and the least is not above the most."""
    with pytest.raises(InvalidArgument):
        KubeSettings(cluster="c", **change)


def test_the_environment_is_not_shown():
    """Nothing in it is a secret; a repr in a log is no place for it all the same."""
    assert "hidden" not in repr(KubeSettings(cluster="c", environment={"A": "hidden"}))


def test_what_a_group_has_beyond_the_usual():
    """By the label of the group; a group of which nothing is said has nothing, and all tolerate what all nodes have."""
    mine = GroupSettings(infiniband=True, interruptable=True, taints=(Taint("dedicated", "x", "NoSchedule"),))
    settings = KubeSettings(cluster="c", groups={"g": mine})
    assert settings.group({"iris-scale-group": "g"}) is mine
    assert settings.group({"iris-scale-group": "h"}) == settings.group({}) == GroupSettings()
    assert GroupSettings().tolerated == words.OUR_TOLERATIONS
    assert settings.tolerated == {"g": (*words.OUR_TOLERATIONS, words.INTERRUPTABLE_TAINT, "dedicated")}
