"""A site's process that stays alive: Flower starts a new process for every message, which passes the message to it.

The process holds the images and a built network, and answers at a socket in the site's own folder, which only its owner
may enter. It ends with the program that it serves. Nothing is pickled: a message is a JSON value and arrays.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from hashlib import sha256
from math import inf
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

from fedce.base.config import dumps, load
from fedce.base.errors import EngineError, ReplyError
from fedce.base.files import locked, private_folder
from fedce.base.garbage import search_rarely_until_imported
from fedce.base.tables import BUILT_IN
from fedce.site.wire import Parcel

START_SECONDS = 120.0
IDLE_SECONDS = 3600.0


def ask_resident(config_file: Path, site: str, data: str, home: Path, parcel: Parcel, served: int) -> Parcel:
    """Pass a parcel to the site's process, which is started if needed and ends with the process id `served`."""
    home = home.expanduser().resolve()
    data = data if data in BUILT_IN else str(Path(data).expanduser().resolve())
    private_folder(home)
    door = _door(config_file, site, data)
    deadline = monotonic() + START_SECONDS
    process: subprocess.Popen[bytes] | None = None
    while True:
        with suppress(FileNotFoundError, ConnectionRefusedError), _entered(home, door) as connection:
            connection.send_bytes(parcel.to_bytes())
            return Parcel.from_bytes(connection.recv_bytes())
        if process is None or process.poll() == 0:
            process = _start(config_file, site, data, home, door, served)
        elif process.poll() is not None:
            raise EngineError(f"the process of site {site!r} ended with code {process.poll()}; see {home / 'site.log'}")
        if monotonic() > deadline:
            raise EngineError(f"the process of site {site!r} does not answer; see {home / 'site.log'}")
        sleep(0.05)


def _door(config_file: Path, site: str, data: str) -> str:
    """The name of the socket, which changes with the experiment, the site and the data."""
    return f"door-{sha256('|'.join([config_file.read_text('utf-8'), site, data]).encode()).hexdigest()[:12]}"


@contextmanager
def _entered(home: Path, door: str) -> Iterator[Connection]:
    # From inside the folder, because the path of a socket may have only about a hundred characters.
    with chdir(home):
        connection = Client(door, family="AF_UNIX")
    with connection:
        yield connection


def _start(config_file: Path, site: str, data: str, home: Path, door: str, served: int) -> subprocess.Popen[bytes]:
    # A copy, because the app's own folder may be replaced while the process lives.
    own = home / f"{door}.toml"
    own.write_bytes(dumps(load(config_file)).encode())
    command = [sys.executable, "-m", "fedce.engines.doorway", str(own), site, data, str(home), door, str(served)]
    with (home / "site.log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd=home
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="A site's process; started by fedce itself.")
    for name in ("config", "site", "data", "home", "door"):
        parser.add_argument(name)
    parser.add_argument("served", type=int)
    given = parser.parse_args()
    home = Path(given.home)
    with _lock(home / f"{given.door}.lock") as is_first:
        if is_first:
            _serve(Path(given.config), given.site, given.data, home, given.door, given.served)


@contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Whether this is the only process for this door; the lock ends with the process, however that ends."""
    with path.open("w") as file:
        yield locked(file)


def _serve(config_file: Path, site: str, data: str, home: Path, door: str, served: int) -> None:
    from fedce.federation.lines import versions
    from fedce.site.resident import Resident, at_hospital

    os.chdir(home)
    last = [monotonic()]
    Thread(target=_end_with, args=(served, last), daemon=True).start()
    resident = Resident(at_hospital(load(config_file), site, data), site, home, versions())
    Path(door).unlink(missing_ok=True)
    with Listener(door, family="AF_UNIX") as listener:
        while True:
            last[0] = monotonic()
            with listener.accept() as connection, suppress(EOFError, OSError, ReplyError):
                parcel = Parcel.from_bytes(connection.recv_bytes())
                last[0] = inf  # While it answers, the process is not idle.
                connection.send_bytes(resident.answer(parcel).to_bytes())


def _end_with(served: int, last: list[float]) -> None:
    """End this process after the process `served`, or when idle; the site's memory is on disk after every answer."""
    while _is_alive(served) and monotonic() - last[0] < IDLE_SECONDS:
        sleep(0.5)
    os._exit(0)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    search_rarely_until_imported()
    main()
