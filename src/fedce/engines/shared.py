"""Memory that processes share: models and site memories go through it without being sent."""

import ctypes
import json
import mmap
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedce.files import Arrays

ALIGNMENT = 64
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, so that no orphan writes beside a resumed run.

    Only Linux has this; elsewhere a worker ends when it next reads its pipe.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Block:
    """A piece of shared memory. Pages cost nothing until they are written.

    Forked processes inherit an anonymous mapping, which no limit on /dev/shm applies to. Spawned ones can't, and map
    a temporary file.
    """

    def __init__(self, size: int, inherited: bool) -> None:
        self.size = size
        self.path: Path | None = None
        if inherited:
            self._map = mmap.mmap(-1, size)
            return
        descriptor, name = tempfile.mkstemp(prefix="fedce-")
        os.ftruncate(descriptor, size)
        os.close(descriptor)
        self.path = Path(name)
        self._map = self._open()

    def _open(self) -> mmap.mmap:
        assert self.path is not None
        with self.path.open("r+b") as file:
            return mmap.mmap(file.fileno(), self.size)

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size, "path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.size, self.path = state["size"], state["path"]
        self._map = self._open()

    def vector(self, length: int) -> NDArray[np.float32]:
        """The block's beginning as a float32 vector; no copy."""
        return np.frombuffer(self._map, np.float32, length)

    def put(self, arrays: Arrays, about: dict[str, Any]) -> None:
        """Store arrays and a JSON value."""
        rows: list[tuple[str, str, tuple[int, ...], int, int]] = []
        start = 0
        for key, array in arrays.items():
            rows.append((key, array.dtype.str, array.shape, start, array.nbytes))
            start += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        header = json.dumps({"about": about, "rows": rows}).encode()
        base = -(-(8 + len(header)) // ALIGNMENT) * ALIGNMENT
        if base + start > self.size:
            raise ValueError(f"a block of {self.size} bytes can't hold {base + start}")
        self._map[:8] = len(header).to_bytes(8, "little")
        self._map[8 : 8 + len(header)] = header
        for (_, _, _, offset, nbytes), array in zip(rows, arrays.values(), strict=True):
            target = np.frombuffer(self._map, np.uint8, nbytes, base + offset)
            target[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def get(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """Copies of what was stored, or None if nothing was."""
        length = int.from_bytes(self._map[:8], "little")
        if length == 0:
            return None
        header = json.loads(self._map[8 : 8 + length])
        base = -(-(8 + length) // ALIGNMENT) * ALIGNMENT
        arrays = {
            key: np.frombuffer(self._map, np.uint8, nbytes, base + offset).copy().view(dtype).reshape(shape)
            for key, dtype, shape, offset, nbytes in header["rows"]
        }
        return arrays, header["about"]

    def close(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)
