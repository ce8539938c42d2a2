"""Packs the models of tasks: as differences to the model that a site was sent before, where it still has that one."""

from fedce.base.tables import Pack
from fedce.core.messages import Task
from fedce.core.params import Params
from fedce.site.travel import Arrays
from fedce.site.wire import Parcel, task_arrays, task_parcel


class Packing:
    """Makes parcels of tasks, and remembers the newest model that came to its sites, and which sites these are.

    A site that was silent, failed or came back under another address is sent the whole model.
    """

    def __init__(self, pack: Pack) -> None:
        self.pack = pack
        self._base: tuple[Params, str] | None = None
        """The newest model that was answered to, and its digest."""
        self._holders: set[str] = set()
        self._last: tuple[list[int], tuple[Params | None, Task], Arrays] | None = None

    def parcel(self, task: Task, run: str, n_channels: int, key: str) -> Parcel:
        if self.pack == "none":
            return task_parcel(task, run, n_channels, key)
        base, digest = self._base if self._base and task.site in self._holders else (None, "")
        return task_parcel(task, run, n_channels, key, self._arrays(task, base), digest)

    def _arrays(self, task: Task, base: Params | None) -> Arrays:
        """The task's packed models; most tasks of a round bring the same ones, which are packed once."""
        wanted = [id(model) for model in (base, task.params, *task.models)]
        if self._last is None or self._last[0] != wanted:
            # The models are kept too: while they live, no others have their ids.
            self._last = (wanted, (base, task), task_arrays(task, self.pack, base))
        return self._last[2]

    def arrived(self, task: Task) -> None:
        """The task's site has answered, so it holds the task's model."""
        if self.pack == "none":
            return
        if self._base is None or task.params is not self._base[0]:
            self._base, self._holders = (task.params, task.params.digest), set()
        self._holders.add(task.site)

    def forget(self, site: str) -> None:
        """What the site held may be lost."""
        self._holders.discard(site)
