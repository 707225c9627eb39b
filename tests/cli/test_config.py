"""``config check`` says what a configuration means, or all that is wrong with it."""

import pytest

from iriscw.config.load import load_config, parse_config
from iriscw.config.reference import EXAMPLE

LOCAL = "platform: { local: {} }\nscale_groups:\n  small: { max_slices: 4 }\n"


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a configuration and gives its path."""

    def write(text):
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        return path

    return write


def test_a_good_file_is_printed_in_full(iriscw, written):
    """What is printed is the same configuration, with its defaults."""
    path = written(LOCAL)
    code, out, err = iriscw("config", "check", str(path))
    assert (code, err) == (0, "")
    assert "boot_timeout" in out
    assert parse_config(out) == load_config(path)


def test_what_is_unusual_is_told(iriscw, written):
    """The file is good all the same: warnings go to standard error, each with its key."""
    code, out, err = iriscw("config", "check", str(written(EXAMPLE)))
    assert (code, err) == (0, "")
    assert parse_config(out) == parse_config(EXAMPLE)
    code, out, err = iriscw("config", "check", str(written(EXAMPLE.replace("cd-gp-a192-genoa", "new-type"))))
    assert code == 0
    assert err.startswith("warning: scale_groups.cpu.slice_template.coreweave.instance_type: 'new-type'")


def test_all_mistakes_at_once(iriscw, written):
    """Each has its line and its key, and nothing is printed but them."""
    code, out, err = iriscw("config", "check", str(written(LOCAL + "  small2: { max_slice: 4 }\nnope: 1\n")))
    assert (code, out) == (2, "")
    assert "line 4" in err
    assert "line 5" in err


def test_a_file_that_is_not_there(iriscw, tmp_path):
    """That is a mistake of the command, in one line."""
    code, out, err = iriscw("config", "check", str(tmp_path / "none.yaml"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "none.yaml: cannot be read" in err
