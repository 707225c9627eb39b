"""The configuration's reference page."""

import subprocess
import sys
from pathlib import Path

from iriscw.config import model
from iriscw.config.load import parse_config
from iriscw.config.reference import EXAMPLE, reference
from iriscw.config.schema import keys

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_what_the_model_says():
    """docs/configuration.md is the module's output: run `python -m iriscw.config.reference` after a change."""
    assert PAGE.read_text() == reference()


def test_the_module_writes_the_page():
    """Running the module prints the page and nothing else."""
    done = subprocess.run([sys.executable, "-m", "iriscw.config.reference"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (reference(), "")


def test_the_examples_load():
    """What the page shows can be used."""
    config = parse_config(EXAMPLE)
    assert config.scale_groups["h100_8x"].autoscaler.scale_down_delay == 1200 * 10**9
    small = reference().split("```yaml\n")[2].split("```")[0]
    assert parse_config(small).platform.kind is model.PlatformKind.LOCAL


def test_every_key_is_on_the_page():
    """No key is left out, each stands under the heading of its section."""
    text = reference()
    for path, section in {
        "scale_groups.<name>": model.ScaleGroupConfig,
        "scale_groups.<name>.slice_template.coreweave": model.CoreweaveSliceConfig,
        "defaults.timeouts": model.TimeoutConfig,
        "platform.local": model.LocalPlatformConfig,
    }.items():
        table = text.split(f"### `{path}`\n")[1].split("\n### ")[0]
        for known in keys(section):
            assert f"| `{known}` |" in table


def test_defaults_of_both_platforms_are_shown():
    """A default that differs is given for each platform; one that is missing is said to be."""
    text = reference()
    assert "`30s` (local), `30m` (coreweave, plugin)" in text
    assert "| `ram` | size | `1GiB` (local), elsewhere it must be said |" in text
    assert "| `instance_type` | text | must be said |" in text
