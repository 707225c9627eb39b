"""Settings that cannot be are refused when they are made."""

from pathlib import Path

import pytest

from iriscw._errors import InvalidArgument
from iriscw_sims.serve.settings import FASTEST, POOLS_LIMIT, SLOWEST, PoolToBegin, ServeSettings
from raised import that


def test_defaults_are_private():
    """Loopback, a free port, real time."""
    settings = ServeSettings()
    assert (settings.host, settings.port, settings.speed) == ("127.0.0.1", 0, 1.0)


@pytest.mark.parametrize("speed", [0, -1, SLOWEST / 2, FASTEST * 2, float("nan"), float("inf")])
def test_a_speed_has_bounds(speed):
    """Nothing that never moves, nothing that no machine follows, and nothing that is not a number."""
    with pytest.raises(InvalidArgument, check=that(comes_from="settings.ServeSettings._check_speed")):
        ServeSettings(speed=speed)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_is_one(port):
    """Ports have 16 bits."""
    with pytest.raises(InvalidArgument, check=that(comes_from="settings.ServeSettings._check_port")):
        ServeSettings(port=port)


@pytest.mark.parametrize("half", ["tls_cert", "tls_key"])
def test_tls_takes_both(half):
    """A certificate without its key is none."""
    with pytest.raises(InvalidArgument, check=that(comes_from="settings.ServeSettings._check_tls")):
        ServeSettings(**{half: Path("x")})


def test_pools_are_bounded():
    """As many as one configuration may have groups."""
    pools = tuple(PoolToBegin(f"p{number}") for number in range(POOLS_LIMIT))
    assert len(ServeSettings(pools=pools).pools) == POOLS_LIMIT
    with pytest.raises(InvalidArgument, check=that(comes_from="settings._checked_pools")):
        ServeSettings(pools=(*pools, PoolToBegin("one-more")))


@pytest.mark.parametrize("faults", [{"no such fault": 0.5}, {"node dies early": 1.5}, {"node dies early": -0.1}])
def test_faults_are_known_and_their_rates_are_shares(faults):
    """An unknown one is told with those that there are."""
    with pytest.raises(InvalidArgument, check=that(comes_from="settings.ServeSettings._check_faults")):
        ServeSettings(faults=faults)
    assert ServeSettings(faults={"node dies early": 0.5}).faults
