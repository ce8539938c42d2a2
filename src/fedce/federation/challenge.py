"""The challenge of a run: which rounds are drawn for an audit, and what the coordinator keeps of them."""

import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedce.base.config import Config
from fedce.base.errors import RunError
from fedce.base.files import digest_of, read_json, write_private, write_tensors
from fedce.core.challenge import drawn_by, hash_of
from fedce.core.messages import Reply, Task
from fedce.core.params import Params
from fedce.record.folder import RunFolder


def challenge_of(run_folder: RunFolder, config: Config, first: int = 0) -> dict[str, str]:
    """What a start or a continuation says of the challenge of its rounds; the seed stays in the run folder."""
    if config.audit == 0:
        return {}
    file = run_folder.seed_file(first)
    # A file that is there already is of a start that a kill kept from the ledger.
    write_private(file, json.dumps({"seed": secrets.token_hex(32)}).encode())
    return {"challenge": hash_of(_seed_in(file))}


def _seed_in(file: Path) -> str:
    content = read_json(file)
    seed = content.get("seed") if isinstance(content, dict) else None
    try:
        bytes.fromhex(seed or "")
    except (TypeError, ValueError):
        seed = None
    if not isinstance(seed, str) or not seed:
        raise RunError(f"{file} does not hold the seed of the audit's rounds; restore it, or start a new run")
    return seed


class Challenge:
    """The drawn rounds of a session. They are not told before every site has answered."""

    def __init__(self, run_folder: RunFolder | None = None, config: Config | None = None) -> None:
        self.drawn: frozenset[int] = frozenset()
        self.seed = ""
        self._earlier: tuple[int, ...] = ()
        part = run_folder.ledger().part if run_folder else None
        if run_folder is None or config is None or part is None or part.challenge is None:
            return
        self._folder = run_folder
        self.seed = _seed_in(run_folder.seed_file(part.round_no))
        if hash_of(self.seed) != part.challenge:
            raise RunError(
                f"{run_folder.seed_file(part.round_no)} is not the seed whose hash the ledger holds; restore it, or "
                "start a new run"
            )
        self.drawn = drawn_by(self.seed, config.audit, part.round_no, config.n_rounds)
        self._earlier = tuple(
            done.round_no for done in run_folder.rounds() if done.round_no < part.round_no and done.drawn
        )

    @property
    def revealed(self) -> dict[str, str]:
        """What the end says of the challenge."""
        return {"seed": self.seed} if self.seed else {}

    def before(self, round_no: int) -> tuple[int, ...]:
        """The drawn rounds before this one, which may be told now."""
        return (*self._earlier, *sorted(drawn for drawn in self.drawn if drawn < round_no))

    def keep(self, common: Params, tasks: Mapping[str, Task], replies: Iterable[Reply]) -> dict[str, str] | None:
        """Keep what the sites were sent and what they sent, if their round is drawn; returns the files' digests."""
        round_no = next(iter(tasks.values())).round_no
        if round_no not in self.drawn:
            return None
        about = {"round": round_no, "layout": common.layout.digest}
        write_tensors(file := self._folder.start_file(round_no), {"start": common.vector}, about)
        files = [file]
        for reply in replies:
            if (task := tasks.get(reply.site)) is None:
                continue
            arrays = {} if task.params is common else {"start": task.params.vector}
            arrays |= {} if reply.params is None else {"sent": reply.params.vector}
            told = {"rho": task.rho, "has_its_statistics": task.has_its_statistics, "score_local": task.score_local}
            write_tensors(file := self._folder.sent_file(round_no, reply.site), arrays, {**about, **told})
            files.append(file)
        return {str(file.relative_to(self._folder.path)): digest_of(file) for file in files}
