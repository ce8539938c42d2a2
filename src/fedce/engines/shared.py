"""Storage for models: memory that processes share, or disk if the models exceed the memory."""

import ctypes
import json
import mmap
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import RunError
from fedce.base.files import Arrays
from fedce.core.params import Vector

ALIGNMENT = 64
MOST_IN_MEMORY = 2**29
"""Bytes of models that a server keeps in memory during a round; further models go to disk."""
SEGMENT = 2**28
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, so that no orphan writes beside a resumed run.

    Only Linux has this; elsewhere a worker ends when it next reads its pipe.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def serve_parent() -> None:
    """Set up a forked process: its parent handles Ctrl-C and ends it by SIGTERM, and it dies with its parent."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Block:
    """A piece of shared memory. Pages cost nothing until they are written.

    Forked processes inherit an anonymous mapping, to which no limit on /dev/shm applies. Spawned processes can't
    inherit it, and map a temporary file.
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


class Shelf:
    """The models that came in a round: in memory as long as they are few, beyond that in a file.

    All arithmetic goes through models in blocks, so they need not be in memory together, and a round's memory does not
    grow with the number of sites. The file has no name, and vanishes with its process.
    """

    def __init__(self, folder: Path, most: int = MOST_IN_MEMORY) -> None:
        self.folder, self.most = folder, most
        self._segment: mmap.mmap | None = None
        self._n_bytes = self._n_used = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def keep(self, vector: Vector) -> Vector:
        """Store a model; returns a vector with the same numbers, in memory or in the file."""
        if self._n_bytes + vector.nbytes <= self.most:
            self._n_bytes += vector.nbytes
            return vector
        if self._segment is None or self._n_used + vector.nbytes > len(self._segment):
            self._segment, self._n_used = self._new_segment(max(SEGMENT, vector.nbytes)), 0
        kept = np.frombuffer(self._segment, np.float32, len(vector), self._n_used)
        kept[:] = vector
        self._n_used += vector.nbytes
        return kept

    def _new_segment(self, size: int) -> mmap.mmap:
        """Many models in one mapping, because each mapping takes one of the process's open files."""
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                # Reserved now: on a full disk, writing to the mapping would kill the process without a message.
                if sys.platform == "linux":
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    os.ftruncate(file.fileno(), size)
                return mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise RunError(f"can't keep a round's models in {self.folder}: {error.strerror or error}") from None

    def clear(self) -> None:
        """Make room for the next round; vectors that are still in use stay valid."""
        self._segment, self._n_bytes = None, 0
