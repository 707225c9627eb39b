"""The filter that keeps io_uring from programs: what it answers to each call, and that the kernel does as it says."""

import errno
import json
import os
import shutil
import struct
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given, strategies as st

from iriscw.processes import supervisor
from iriscw.processes.supervised import FilterRefused, Program, adopt, launch
from iriscw.processes.syscall_filter import ALLOW, ARCHITECTURES, FREEZABLE, MACHINES, REFUSE, X32_BIT, hindrance
from raised import that

LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ANY = st.integers(0, 2**32 - 1)

ASK = """
import ctypes, json, os, subprocess, sys, threading
library = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    return ctypes.get_errno() if library.syscall(number, *arguments) == -1 else 0
def seen():
    status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines())
    # The two beside it are asked to act on a descriptor that there is not.
    return [call(425, 0, None), call(426, -1, 0, 0, 0, None, 0), call(427, -1, 0, None, 0),
            int(status['Seccomp_filters']), int(status['NoNewPrivs'])]
"""
SEEN = f"""{ASK}
told = {{"self": seen(), "above": "Seccomp:\\t0" in open(f"/proc/{{os.getppid()}}/status").read()}}
if not sys.argv[1:]:
    below = subprocess.run([sys.executable, __file__, "below"], capture_output=True, check=True)
    told["below"] = json.loads(below.stdout)["self"]
print(json.dumps(told))
"""


def answer(program: bytes, number: int, architecture: int) -> int:
    """Interpret classic BPF, as far as the filter uses it, over a ``struct seccomp_data``."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *([0] * 6))
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    loaded = at = 0
    while True:
        what, if_true, if_false, operand = code[at]
        at += 1
        if what == LOAD:
            (loaded,) = struct.unpack_from("=I", data, operand)
        elif what == JUMP_IF_EQUAL:
            at += if_true if loaded == operand else if_false
        else:
            assert what == RETURN
            return operand


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=list(ARCHITECTURES))
def test_one_call_is_refused(architecture):
    """On each architecture io_uring_setup is answered with ENOSYS, and every other call there is, is let through."""
    refused = [number for number in range(4096) if answer(FREEZABLE, number, architecture) != ALLOW]
    assert (refused, answer(FREEZABLE, 425, architecture)) == ([425], 0x50000 | errno.ENOSYS)


def test_programs_with_short_pointers():
    """On x86_64 they make the same call by another number."""
    assert answer(FREEZABLE, 425 | X32_BIT, ARCHITECTURES["x86_64"]) == REFUSE


@given(number=ANY, architecture=ANY.filter(lambda each: each not in ARCHITECTURES.values()))
def test_nothing_is_said_of_other_architectures(number, architecture):
    """Their numbers mean something else."""
    assert answer(FREEZABLE, number, architecture) == ALLOW


@given(number=ANY.filter(lambda each: each & ~X32_BIT != 425), architecture=st.sampled_from([*ARCHITECTURES.values()]))
def test_no_other_number_is_refused(number, architecture):
    """Whatever a program asks for."""
    assert answer(FREEZABLE, number, architecture) == ALLOW


def test_where_there_is_a_filter():
    """On the machines that it was made for; for others the reason names them."""
    assert [hindrance(each) for each in MACHINES] == ["", ""]
    assert "riscv64" in hindrance("riscv64")


def program(tmp_path: Path, code: str, **changes) -> Program:
    """Return a program that runs Python from a file."""
    (tmp_path / "program.py").write_text(code)
    return Program(
        argv=(sys.executable, "-I", "-S", str(tmp_path / "program.py")),
        folder=tmp_path / "program",
        workdir=tmp_path,
        stdout=tmp_path / "log",
        stderr=tmp_path / "errors",
        markers={"IRIS_ATTEMPT_UID": str(tmp_path)},
        environment={"PATH": os.environ["PATH"]},
        **changes,
    )


async def told(asked: Program) -> dict:
    """Run it to its end, and give what it wrote."""
    running = await launch(asked)
    with anyio.fail_after(60):
        ending = await running.wait()
    assert ending.code == 0, asked.stderr.read_text()
    return json.loads(asked.stdout.read_text())


async def test_a_program_gets_no_io_uring(tmp_path):
    """Nor does what it starts. Other calls go through, its supervisor is as it was, and who asked for nothing, too."""
    (tmp_path / "plain").mkdir()
    plain = await told(program(tmp_path / "plain", SEEN))
    filtered = await told(program(tmp_path, SEEN, syscall_filter=FREEZABLE))
    made, *others, filters, privileges = plain["self"]
    if made == errno.ENOSYS:
        pytest.skip("this kernel has no io_uring at all")
    assert filtered["self"][:4] == [errno.ENOSYS, *others, filters + 1]
    assert filtered["below"] == filtered["self"]
    assert filtered["above"] == plain["above"]
    assert plain["below"] == plain["self"]
    if has_admin():
        assert filtered["self"][4] == privileges


def has_admin() -> bool:
    """Whether this process has CAP_SYS_ADMIN."""
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) & 1 << 21)


async def test_without_the_right_nobody_gains_any(tmp_path):
    """Without CAP_SYS_ADMIN the filter is taken all the same, by a process that can gain no rights from then on."""
    script = tmp_path / "script.py"
    load = "import importlib.util as u; s = u.spec_from_file_location('supervisor', sys.argv[1])"
    take = "m = u.module_from_spec(s); s.loader.exec_module(m); m.install_filter(bytes.fromhex(sys.argv[2]))"
    script.write_text(f"{ASK}\n{load}; {take}\nprint(json.dumps(seen()))")
    words = [sys.executable, "-I", "-S", str(script), supervisor.__file__, FREEZABLE.hex()]
    if has_admin():
        if (drop := shutil.which("setpriv")) is None:
            pytest.skip("there is no setpriv, and this user has the right")
        words = [drop, "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", *words]
    done = await anyio.run_process(words)
    made, *_, privileges = json.loads(done.stdout)
    assert (made, privileges) == (errno.ENOSYS, 1)


async def test_a_filter_that_the_kernel_does_not_take(tmp_path):
    """It is a named error, and nothing was executed."""
    asked = program(tmp_path, "open('ran', 'w')", syscall_filter=bytes(8))
    with pytest.raises(FilterRefused, check=that(comes_from="supervised.launch")):
        await launch(asked)
    assert not (tmp_path / "ran").exists()
    assert await adopt(asked.folder, asked.markers) is None
