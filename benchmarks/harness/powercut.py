"""Power cuts without cutting power: after a kill -9, files are cut back to what was synced.

A kill -9 alone proves nothing of durability: what a process wrote lives on in the kernel's cache. powercut.c, preloaded
into the store, notes the size of each file at each successful fsync or fdatasync. Names and renames are taken as
durable: what is tested is the content.
"""

import os
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("powercut.c")
_ENTRY = struct.Struct("=QQ")  # struct synced


class PowerCut:
    """The record of one store's data folder. Start the store with `environment`; when it is killed, `cut`."""

    def __init__(self, library: Path, data_dir: Path, record: Path) -> None:
        self._data_dir = data_dir
        self._record = record
        self._at_start: dict[int, int] = {}
        self.environment = {"LD_PRELOAD": str(library), "POWERCUT_RECORD": str(record)}

    def begin(self) -> None:
        """Before each start of the store: what is there now is on disk."""
        self._record.unlink(missing_ok=True)
        self._at_start = {file.stat().st_ino: file.stat().st_size for file in self._files()}

    def cut(self) -> int:
        """Cut every file back to what was synced since `begin`. The number of bytes that are gone."""
        synced = dict(self._at_start)
        if self._record.exists():
            synced.update(_ENTRY.iter_unpack(self._record.read_bytes()))
        gone = 0
        for file in self._files():
            state = file.stat()
            size = synced.get(state.st_ino, 0)
            if state.st_size > size:
                gone += state.st_size - size
                os.truncate(file, size)
        return gone

    def _files(self) -> list[Path]:
        return [path for path in self._data_dir.rglob("*") if path.is_file()]


def build_library(folder: Path, *, compiler: str = "gcc") -> Path:
    """Compile powercut.c into a folder; the library's path. Raises OSError without a compiler."""
    library = folder / "powercut.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)  # noqa: S603 - our own source
    return library
