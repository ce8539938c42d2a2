"""The command line in processes of its own that start at once: torch and MONAI alone take five seconds to import."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

WARM = ["fedce.cli", "fedce.engines.starting", "fedce.present.reported", "fedce.questions.jobs", "monai.networks.nets"]


def with_small_recipe(arguments: list[str]) -> list[str]:
    """Most tests are about other things than a plan or the network, which train longer: without a file they take the
    small recipe, and a network that trains in no time."""
    plans = arguments[:1] in (["run"], ["compare"], ["doctor"])
    if not plans or any(word.endswith(".toml") or "recipe" in word or word == "--resume" for word in arguments):
        return arguments
    tiny = [] if any(word.startswith("model.") for word in arguments) else ["--set", "model.channels=[4,8]"]
    return [*arguments, "--set", "recipe=small", *tiny]


class Started:
    """`fedce` with these arguments; what it prints as errors is in a file. To be used like a subprocess.Popen."""

    def __init__(self, arguments: list[str], errors: Path, *, new_session: bool = False) -> None:
        # Forked from a process that has only imported, and so has no threads: as good as new.
        context: Any = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(WARM)
        about = (with_small_recipe([*map(str, arguments)]), dict(os.environ), str(errors), str(Path.cwd()), new_session)
        self._process = context.Process(target=_command_line, args=about)
        self._process.start()
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("fedce", timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # It may have ended since.
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _command_line(
    arguments: list[str], environment: Mapping[str, str], errors: str, folder: str, new_session: bool
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if new_session:
        os.setsid()
    with Path(errors).open("w") as written, Path(os.devnull).open("r+") as nothing:
        for number, file in enumerate((nothing, nothing, written)):
            os.dup2(file.fileno(), number)
    sys.argv = ["fedce", *arguments]
    from fedce.cli import main

    main(arguments)
