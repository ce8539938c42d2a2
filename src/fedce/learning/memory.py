"""Memory that a training process keeps, instead of asking the system for it again in each step.

A step makes and frees hundreds of megabytes of activations. By default, the C library gives large blocks back to the
system at once, and the system clears each page of 4 KiB before it gives it out again. Memory that is kept is not
cleared again, and in pages of 2 MiB fewer addresses have to be looked up. No number changes.
"""

import ctypes
import os
import sys
from functools import cache

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Numbers of these options in the GNU C library's malloc.h."""
KEPT_BLOCK = 256 * 2**20
"""Blocks up to this size stay in the process when they are freed."""
KEPT = 2**30
"""Free memory at the end of the heap that a process keeps."""
GROWTH = 16 * 2**20


@cache
def keep_memory() -> bool:
    """Keep freed memory in this process, in large pages; returns whether the C library can do this.

    To be called before torch makes its first tensor: later, torch no longer reads whether to ask for large pages.
    """
    if not sys.platform.startswith("linux"):
        return False
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if option is None:
        return False
    # Libraries before 2.35 refuse more than 32 MiB.
    kept = [option(M_MMAP_THRESHOLD, size) or option(M_MMAP_THRESHOLD, 32 * 2**20) for size in (KEPT_BLOCK,)]
    return all([*kept, option(M_TRIM_THRESHOLD, KEPT), option(M_TOP_PAD, GROWTH)])
