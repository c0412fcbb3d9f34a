"""Copies the beginning of a file, synced to disk, and tells its digest."""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO, Final

from service.embedded.append_only import CHUNK_BYTES, Say
from service.embedded.data_folder import open_private

PROGRESS_BYTES: Final = 256 << 20


def copy_file(file: BinaryIO, target: Path, size: int, say: Say) -> str:
    """Copy the first `size` bytes of a file and sync them to disk. Returns their SHA-256."""
    digest, done, said = hashlib.sha256(), 0, 0
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(target, "wb", opener=open_private) as copy:
        while chunk := file.read(min(CHUNK_BYTES, size - done)):
            digest.update(chunk)
            copy.write(chunk)
            done += len(chunk)
            if done - said >= PROGRESS_BYTES:
                say(f"{target.name}: {100 * done // size} %")
                said = done
        copy.flush()
        os.fsync(copy.fileno())
    return digest.hexdigest()
