"""Builds the wheel of the package: PEP 517 and PEP 660 with the standard library alone, so that it works without a network.

The binaries are made by scripts/wheel.sh, or taken from the folder that MSCCLPP_WHEEL_BINARIES names. The wheel's tag says which
glibc they need: it is computed from the versions of their symbols.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import struct
import subprocess
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OLDEST = (2, 28)  # the tag names no older glibc than this one, for which no machine tests it


def _version() -> str:
    with open(os.path.join(ROOT, "python", "mscclpp", "__init__.py"), encoding="utf-8") as f:
        return re.search(r'^__version__ = "(.+)"$', f.read(), re.M).group(1)


def _metadata() -> str:
    return f"""Metadata-Version: 2.1
Name: mscclpp
Version: {_version()}
Summary: Communication between processes and GPUs: collectives, channels and proxies
License: MIT
Requires-Python: >=3.10
Description-Content-Type: text/markdown

Collectives over arrays of NumPy, torch, CuPy and JAX, without another package and without a compiler:

    import mscclpp, numpy

    with mscclpp.Communicator() as comm:
        sums = numpy.full(4, float(comm.rank))
        comm.all_reduce(sums)

Started by `mscclpp-run -n 4 python program.py`.
"""


ENTRY_POINTS = "[console_scripts]\nmscclpp-run = mscclpp.__main__:main\n"


def _sections(data: bytes):
    """Yield (type, offset, size, link, info) of the sections of an ELF file of 64 bits."""
    at, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    for i in range(count):
        _, kind, _, _, offset, length, link, info = struct.unpack_from("<IIQQQQII", data, at + i * size)
        yield kind, offset, length, link, info


def glibc_needed(path: str) -> tuple[int, int]:
    """Return the newest version of glibc that the symbols of an ELF file need; (0, 0) for none, and for other files."""
    with open(path, "rb") as f:
        data = f.read()
    newest = (0, 0)
    if data[:5] != b"\x7fELF\x02":
        return newest
    sections = list(_sections(data))
    for kind, offset, _, link, info in sections:
        if kind != 0x6FFFFFFE:  # SHT_GNU_verneed
            continue
        strings = sections[link][1]
        for _ in range(info):
            _, count, _, first, following = struct.unpack_from("<HHIII", data, offset)
            at = offset + first
            for _ in range(count):
                _, _, _, name, more = struct.unpack_from("<IHHII", data, at)
                text = data[strings + name:data.index(b"\0", strings + name)]
                version = re.fullmatch(rb"GLIBC_(\d+)\.(\d+)(\.\d+)?", text)
                if version:
                    newest = max(newest, (int(version[1]), int(version[2])))
                at += more
            offset += following
    return newest


def _files(folder: str):
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(names):
            path = os.path.join(parent, name)
            yield path, os.path.relpath(path, folder)


class _Wheel:
    """A wheel that is written: files with their hashes."""

    def __init__(self, folder: str, tag: str) -> None:
        self.info = f"mscclpp-{_version()}.dist-info"
        self.name = f"mscclpp-{_version()}-{tag}.whl"
        self.file = zipfile.ZipFile(os.path.join(folder, self.name), "w", zipfile.ZIP_DEFLATED)
        self.record = []
        self.tag = tag

    def add(self, name: str, data: bytes, executable: bool = False) -> None:
        entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))  # one tree, one wheel
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.file.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}\n")

    def end(self) -> str:
        self.add(f"{self.info}/METADATA", _metadata().encode())
        self.add(f"{self.info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: mscclpp-go\nRoot-Is-Purelib: false\nTag: {self.tag}\n".encode())
        self.add(f"{self.info}/entry_points.txt", ENTRY_POINTS.encode())
        for name in ("LICENSE", "THIRD_PARTY_NOTICES"):
            with open(os.path.join(ROOT, name), "rb") as f:
                self.add(f"{self.info}/licenses/{name}", f.read())
        record = f"{self.info}/RECORD"
        self.file.writestr(record, "".join(self.record) + f"{record},,\n")
        self.file.close()
        return self.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build the wheel, and return its name."""
    binaries = os.environ.get("MSCCLPP_WHEEL_BINARIES")
    made = None if binaries else tempfile.mkdtemp(prefix="mscclpp-wheel-")
    try:
        if made:
            binaries = os.path.join(made, "out")
            subprocess.run([os.path.join(ROOT, "scripts", "wheel.sh"), binaries], check=True)
        files = list(_files(binaries))
        glibc = max([OLDEST, *(glibc_needed(path) for path, _ in files)])
        wheel = _Wheel(wheel_directory, "py3-none-manylinux_%d_%d_x86_64" % glibc)
        for path, name in _files(os.path.join(ROOT, "python", "mscclpp")):
            with open(path, "rb") as f:
                wheel.add(f"mscclpp/{name}", f.read())
        for path, name in files:
            with open(path, "rb") as f:
                wheel.add(f"mscclpp/{name}", f.read(), os.access(path, os.X_OK))
        return wheel.end()
    finally:
        if made:
            shutil.rmtree(made)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Build a wheel that leads to the source tree, where make build has to have been run."""
    wheel = _Wheel(wheel_directory, "py3-none-linux_x86_64")
    wheel.add("mscclpp.pth", (os.path.join(ROOT, "python") + "\n").encode())
    return wheel.end()


def get_requires_for_build_wheel(config_settings=None):
    """Return no requirements: Go and a C++ compiler are no packages."""
    return []


get_requires_for_build_editable = get_requires_for_build_wheel


def build_sdist(sdist_directory, config_settings=None):
    """Refuse: the source is the repository, whose history has the version."""
    raise NotImplementedError("mscclpp has no source distribution: build the wheel in a clone of the repository")
