"""Which addresses processes speak to, read from /proc while they live."""

import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep


def connections_of(pids: Iterable[int], wanted: Callable[[str], bool] = lambda end: True) -> set[str]:
    """The other ends of all sockets of these processes; of those that are wanted."""
    end_by_socket = {}
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] != "0" and wanted(end := _address(fields[2])):
                end_by_socket[fields[9]] = end
    # Mostly there are none, and the hundreds of open files of a federation need not be read.
    return {end_by_socket[found] for found in _sockets_of(pids) if found in end_by_socket} if end_by_socket else set()


def _sockets_of(pids: Iterable[int]) -> Iterator[str]:
    for pid in pids:
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if found := re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink())):
                        yield found[1]


def _address(text: str) -> str:
    digits, port = text.split(":")
    words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
    return f"{ipaddress.ip_address(b''.join(words))}:{int(port, 16)}"


def is_outside(end: str) -> bool:
    address = ipaddress.ip_address(end.rpartition(":")[0])
    mapped = getattr(address, "ipv4_mapped", None) or address
    return not (mapped.is_loopback or mapped.is_unspecified)


def wait_for(condition: Callable[[], object], seconds: float, what: str) -> None:
    end = monotonic() + seconds
    while not condition():
        assert monotonic() < end, f"{what}, {seconds:.0f} s"
        sleep(0.2)


class Watcher:
    """Looks all the time at every process whose environment holds a mark."""

    def __init__(self, mark: str) -> None:
        self.mark = f"FEDCE_MARK={mark}".encode()
        self.outside: set[str] = set()
        self.n_processes = 0
        self._before: set[str] = set()
        """Processes that were there before; there may be hundreds, and none of them has the mark."""
        self._stop = Event()
        self._thread = Thread(target=self._look)

    def processes(self) -> list[int]:
        found = []
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                is_new = folder.name.isdigit() and folder.name not in self._before
                if is_new and self.mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return [pid for pid in found if pid != os.getpid()]

    def _look(self) -> None:
        while not self._stop.wait(0.05):
            pids = self.processes()
            self.n_processes = max(self.n_processes, len(pids))
            self.outside |= connections_of(pids, is_outside)

    def __enter__(self) -> "Watcher":
        self._before = {folder.name for folder in Path("/proc").iterdir()}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
