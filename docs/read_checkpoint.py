"""Read a checkpoint out of a repository without iriscw: what its format says, as a program.

usage: python read_checkpoint.py REPOSITORY CHECKPOINT FOLDER [KEY-FILE]

REPOSITORY is a folder with the objects of the repository, as any tool copies them out of a bucket; FOLDER is made, and
gets the checkpoint's files. Needs Python 3.11, and the package zstandard if a chunk is compressed. A checkpoint that is
encrypted needs the package cryptography, and a file with its key. Signatures are not looked at.
"""

import base64
import hashlib
import hmac
import json
import struct
import sys
from pathlib import Path

PAGE = 4096
ROW = struct.Struct("<32sIIIIB")
RAW, ZSTD, PAGES, PAGES_ZSTD, ZEROS = range(5)


def lines(data: bytes) -> list[tuple[str, dict]]:
    """Return the lines of an object: what each is, and what it says."""
    found = []
    for text in data.decode("ascii").splitlines():
        kind, version, fields = json.loads(text)
        if version != 1:
            sys.exit(f"{kind} has version {version}, and this program reads 1")
        found.append((kind, fields))
    return found


def chunk(size: int, stored: bytes, codec: int) -> bytes:
    """Return the bytes of a chunk."""
    if codec == ZEROS:
        return bytes(size)
    if codec in (ZSTD, PAGES_ZSTD):
        import zstandard

        stored = zstandard.ZstdDecompressor().decompress(stored)
    if codec in (RAW, ZSTD):
        return stored
    count = -(-size // PAGE)
    bits, at, parts = int.from_bytes(stored[: -(-count // 8)], "little"), -(-count // 8), []
    for page in range(count):
        length = min(PAGE, size - page * PAGE)
        parts.append(stored[at : at + length] if bits >> page & 1 else bytes(length))
        at += length if bits >> page & 1 else 0
    return b"".join(parts)


def derived(master: bytes, what: bytes) -> bytes:
    """Return 32 bytes that only who has the key knows."""
    return hmac.digest(master, b"iriscw repository key 1\0" + what, "sha256")


def decrypted(master: bytes, purpose: bytes, attempt: str, data: bytes, about: bytes) -> bytes:
    """Return what was encrypted."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(derived(master, purpose + b"\0" + attempt.encode())).decrypt(data[:12], data[12:], about)


def opened(manifest: bytes, attempt: str, keys: list[bytes]) -> tuple[bytes, bytes]:
    """Return a manifest that is encrypted as if it were not, and its key; one that is not, and no key."""
    said = lines(manifest)
    if said[1][0] != "repository.key":
        return manifest, b""
    found = [master for master in keys if derived(master, b"id")[:16].hex() == said[1][1]["key"]]
    if not found:
        sys.exit(f"the key {said[1][1]['key']} is not in the file")
    clear = manifest[: manifest.index(b'["repository.body"')]
    hidden = b"".join(base64.b64decode(fields["data"]) for kind, fields in said if kind == "repository.body")
    return clear + decrypted(found[0], b"manifest", attempt, hidden, clear), found[0]


def main(repository: Path, checkpoint: str, folder: Path, *files: Path) -> None:
    """Write the files of a checkpoint."""
    ((_, said),) = lines((repository / "format").read_bytes())
    if said["format"] not in (1, 2):
        sys.exit(f"the repository has format {said['format']}, and this program reads 1 and 2")
    (_, head), *_ = lines((repository / "heads" / checkpoint).read_bytes())
    if head["begun_wall_ns"]:
        sys.exit(f"{checkpoint} is being stored")
    manifest = (repository / "manifests" / checkpoint / head["attempt"]).read_bytes()
    if hashlib.sha256(manifest).hexdigest() != head["digest"]:
        sys.exit("the manifest is not the one that the head names")
    keys = [base64.b64decode(line) for file in files for line in file.read_bytes().split()]
    manifest, master = opened(manifest, head["attempt"], keys)
    folder.mkdir(mode=0o700)
    packs: list[str] = []
    name, data = "", b""
    for kind, fields in lines(manifest):
        if kind == "repository.packs":
            packs += fields["names"]
        elif kind == "repository.file":
            name = fields["name"]
            if "/" in name or name.startswith("."):
                sys.exit(f"{name!r} is not a plain name")
            (folder / name).touch(mode=0o600)
        elif kind == "repository.chunks":
            for digest, size, pack, offset, stored, codec in ROW.iter_unpack(base64.b64decode(fields["rows"])):
                data = b""
                if stored:
                    with (repository / "packs" / packs[pack]).open("rb") as file:
                        file.seek(offset)
                        data = file.read(stored)
                    if master:
                        about = struct.pack("<32sIB", digest, size, codec)
                        data = decrypted(master, b"chunk", packs[pack].split("-")[0], data, about)
                data = chunk(size, data, codec)
                if hashlib.sha256(data).digest() != digest:
                    sys.exit(f"{name}: a chunk is damaged")
                with (folder / name).open("ab") as file:
                    file.write(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(Path, sys.argv[3:]))
