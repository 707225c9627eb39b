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
    """A driver that stands in: one GPU of 16 GiB, 8 of them free; two where ``free2`` is put there."""

    def __init__(self, folder: Path, compiled: Path) -> None:
        self.folder = folder
        self.library = folder / "libcuda.so.1"
        shutil.copy(compiled, self.library)
        self.put("free", 8 * GIB)
        self.gpus = NvmlGpus(str(self.library))
        self.cuda = NvidiaCuda(self.interface(), gpus=self.gpus, missing_for_s=0)

    def interface(self) -> LibraryInterface:
        """Make the way to the library, with no kernel behind it."""
        return LibraryInterface(str(self.library), "stand-in", nvml=str(self.library), kernel=None)

    def inits(self) -> int:
        """Say how often the driver was started."""
        path = self.folder / "inits"
        return len(path.read_text().splitlines()) if path.exists() else 0

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
        path.write_text(f"#!{sys.executable} -IS\n{PROGRAM.format(library=str(self.library), help=HELP)}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return BinaryInterface(str(path))


HELP = "--get-state --get-restore-tid --action lock|checkpoint|restore|unlock --timeout --device-map"
PROGRAM = '''
"""A stand-in for NVIDIA's cuda-checkpoint: its options and words, over the stand-in of the library."""
import ctypes, pathlib, sys, uuid
words = {{1: "invalid argument", 2: "out of memory", 3: "initialization error",
         100: "no CUDA-capable device is detected",
         304: "OS call failed or operation not supported on this OS",
         401: "the operation cannot be performed in the present state", 801: "operation not supported"}}
class Pair(ctypes.Structure):
    _fields_ = (("old", ctypes.c_ubyte * 16), ("new", ctypes.c_ubyte * 16))
class Restore(ctypes.Structure):
    _fields_ = (("pairs", ctypes.POINTER(Pair)), ("count", ctypes.c_uint), ("reserved", ctypes.c_char * 52))
library = ctypes.CDLL({library!r})
given = sys.argv[1:]
known = pathlib.Path({library!r}).with_name("help")
known = known.read_text() if known.exists() else {help!r}
if "--help" in given:
    print(known)
    sys.exit()
for each in given:
    if each.startswith("--") and each not in known + " --pid":
        sys.exit(f"unknown option {{each}}")
def value_of(option):
    return given[given.index(option) + 1] if option in given else ""
def gpu(name):
    return (ctypes.c_ubyte * 16)(*uuid.UUID(name.removeprefix("GPU-")).bytes)
pid = int(value_of("--pid"))
code = library.cuInit(0)
if code:
    print(f"Error initializing CUDA: \\"{{words.get(code, code)}}\\"", file=sys.stderr)
    sys.exit(1)
value = ctypes.c_int()
if "--get-state" in given:
    code = library.cuCheckpointProcessGetState(pid, ctypes.byref(value))
    names = ["running", "locked", "checkpointed", "failed"]
    said = names[value.value] if value.value < len(names) else "restoring"
elif "--get-restore-tid" in given:
    code = library.cuCheckpointProcessGetRestoreThreadId(pid, ctypes.byref(value))
    said = value.value
else:
    verb, said = value_of("--action"), ""
    arguments = ctypes.create_string_buffer(64)
    if verb == "lock":
        arguments = (ctypes.c_uint * 16)(int(value_of("--timeout") or 0))
    if verb == "restore" and value_of("--device-map"):
        pairs = [tuple(gpu(side) for side in pair.split("=")) for pair in value_of("--device-map").split(",")]
        arguments = Restore((Pair * len(pairs))(*pairs), len(pairs))
    code = getattr(library, "cuCheckpointProcess" + verb.title())(pid, ctypes.byref(arguments))
if code:
    print(f"Could not do it: \\"{{words.get(code, code)}}\\"", file=sys.stderr)
    sys.exit(1)
print(said)
'''
