"""A traceback shows the user's file, line and text, although the code ran where there is no such file."""

import linecache
import os
import pickle
import subprocess
import sys
import traceback
import types
import zlib

import pytest

from iriscw.task import payload, sources
from iriscw.task.payload import load_payload, make_payload
from iriscw.task.result import encode_exception, read_result_summary

SCRIPT = """
import sys
from iriscw.task.payload import make_payload

def helper(number):
    return 1 // number  # of the helper

def train(number):
    return [helper(each) for each in (1, number)]

sys.stdout.buffer.write(make_payload(train, [0], {}))
"""


def made(tmp_path):
    """Have a script make a payload, and be gone."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    data = subprocess.run([sys.executable, script], capture_output=True, check=True, timeout=60).stdout
    script.unlink()
    return str(script), data


def test_a_traceback_is_the_users(tmp_path):
    """File, line and text of each frame of its own, and no frame of iriscw."""
    script, data = made(tmp_path)
    folder = tmp_path / ".iris"
    folder.mkdir()
    (folder / "payload").write_bytes(data)
    environment = {**os.environ, "IRIS_WORKDIR": str(tmp_path)}
    task = [sys.executable, "-m", "iriscw.task"]
    done = subprocess.run(task, env=environment, capture_output=True, check=False, timeout=60, text=True)
    expected = [
        "Traceback (most recent call last):",
        f'  File "{script}", line 9, in train',
        "    return [helper(each) for each in (1, number)]",
        f'  File "{script}", line 6, in helper',
        "    return 1 // number  # of the helper",
        "ZeroDivisionError: integer division or modulo by zero",
    ]
    shown = [each for each in done.stderr.splitlines() if each.strip(" ^~") and "<listcomp>" not in each]
    assert list(dict.fromkeys(shown)) == expected
    summary = read_result_summary((folder / "result").read_bytes())
    assert (done.returncode, summary.traceback) == (1, done.stderr)


def test_the_name_of_the_file_survives_every_cloudpickle(monkeypatch):
    """Versions that replace it are told the right one."""
    cloudpickle = pytest.importorskip("cloudpickle.cloudpickle")
    reduce = cloudpickle._code_reduce

    def replacing(code):
        make, fields = reduce(code)
        return make, tuple("<dynamic-code>" if each == code.co_filename else each for each in fields)

    monkeypatch.setitem(cloudpickle.Pickler._dispatch_table, types.CodeType, replacing)
    function = sources.loads(sources.dumps(lambda: 1))
    assert function.__code__.co_filename == __file__
    assert sources.dumps(lambda: 1).count(b"<dynamic-code>") == 0


def test_readers_that_know_nothing_of_it():
    """A worker of an earlier version reads the call in front, and looks no further."""
    data = sources.dumps((lambda: 7, (), {}))
    function, _, _ = pickle.loads(data)
    assert function() == 7


def test_what_a_notebook_ran():
    """Its cells are no files: their text is what Python remembers."""
    name, text = "<cell 7>", "def cell():\n    raise KeyError('cell')\n"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {}
    exec(compile(text, name, "exec"), space)
    data = make_payload(space["cell"], [], {})
    del linecache.cache[name]
    with pytest.raises(KeyError) as caught:
        load_payload(data)()
    linecache.checkcache()
    assert "raise KeyError('cell')" in "".join(traceback.format_exception(caught.value))
    del linecache.cache[name]


def test_large_sources_stay_at_home(monkeypatch):
    """The call travels without the text, and works."""
    monkeypatch.setattr(sources, "MAX_SOURCE_BYTES", 100)
    data = sources.dumps(lambda: 7)
    with pytest.raises(zlib.error):
        zlib.decompress(data[-50:])
    assert sources.loads(data)() == 7


@pytest.mark.parametrize("spoilt", [b"", b"x", zlib.compress(b"no JSON"), zlib.compress(b'{"a": "b')])
def test_spoilt_source_is_left_out(spoilt):
    """A traceback without text is no reason not to run."""
    assert sources.loads(pickle.dumps(7) + spoilt) == 7


def test_errors_of_our_own_keep_their_last_word():
    """Of one that iriscw raises itself the type and the text are left."""
    with pytest.raises(payload.FrameCorrupt) as caught:
        load_payload(b"nothing")
    frames = traceback.extract_tb(sources.without_ours(caught.value).__traceback__)
    assert [each.filename for each in frames][:1] == [__file__]
    assert "FrameCorrupt" in read_result_summary(encode_exception(caught.value)).traceback
