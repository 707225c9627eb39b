"""A stand-in for NVIDIA's driver: a real shared library, and a program ``cuda-checkpoint`` over the same states."""

import shutil
import stat
import subprocess
import sys
from pathlib import Path

from iriscw.freeze.drivers.cuda.driver import BinaryInterface, LibraryInterface, NvidiaCuda
from iriscw.freeze.drivers.cuda.nvml import NvmlGpus

SOURCE = Path(__file__).with_name("standin.c")
GIB = 1 << 30


def compile_into(folder: Path) -> Path | None:
    """Compile the library; None if there is no compiler."""
    if shutil.which("gcc") is None:
        return None
    path = folder / "libcuda-standin.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(path), str(SOURCE), "-ldl"], check=True)
    return path


class StandIn:
    """A driver that stands in: one GPU of 16 GiB, 8 of them free."""

    def __init__(self, folder: Path, compiled: Path) -> None:
        self.folder = folder
        self.library = folder / "libcuda.so.1"
        shutil.copy(compiled, self.library)
        self.put("free", 8 * GIB)
        self.gpus = NvmlGpus(str(self.library))
        self.cuda = NvidiaCuda(LibraryInterface(str(self.library), "stand-in"), gpus=self.gpus, missing_for_s=0)

    def put(self, name: str, content: object) -> None:
        """Write one of its files, as a whole."""
        (self.folder / "new").write_text(str(content))
        (self.folder / "new").rename(self.folder / name)

    def get(self, name: str) -> str:
        """Read one of its files."""
        return (self.folder / name).read_text()

    def remove(self, name: str) -> None:
        """Remove one of its files."""
        (self.folder / name).unlink()

    def program(self) -> BinaryInterface:
        """Make a ``cuda-checkpoint`` over the same states."""
        path = self.folder / "cuda-checkpoint"
        path.write_text(f"#!{sys.executable} -IS\n{PROGRAM.format(library=str(self.library))}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return BinaryInterface(str(path))


PROGRAM = '''
"""A stand-in for NVIDIA's cuda-checkpoint: its options and words, over the stand-in of the library."""
import ctypes, sys
words = {{2: "out of memory", 304: "OS call failed or operation not supported on this OS",
         401: "the operation cannot be performed in the present state", 801: "operation not supported"}}
library = ctypes.CDLL({library!r})
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if "--help" in sys.argv:
    print("--get-state --get-restore-tid --action lock|checkpoint|restore|unlock --timeout --device-map")
    sys.exit()
given = sys.argv[1:]
pid = int(given[given.index("--pid") + 1])
value = ctypes.c_int()
nothing = ctypes.create_string_buffer(64)
if "--get-state" in given:
    code = library.cuCheckpointProcessGetState(pid, ctypes.byref(value))
    said = ["running", "locked", "checkpointed", "failed"][value.value]
elif "--get-restore-tid" in given:
    code = library.cuCheckpointProcessGetRestoreThreadId(pid, ctypes.byref(value))
    said = value.value
else:
    verb = given[given.index("--action") + 1]
    code = getattr(library, "cuCheckpointProcess" + verb.title())(pid, nothing)
    said = ""
if code:
    print(f"Could not do it: \\"{{words.get(code, code)}}\\"", file=sys.stderr)
    sys.exit(1)
print(said)
'''
