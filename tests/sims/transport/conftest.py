"""What the tests of the simulated transport share: the service of the tests of iriscw.rpc, and a world of their own."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "rpc")]  # for transport_world, rpc_echo and rpc_world
