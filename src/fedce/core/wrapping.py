"""An algorithm around another one, which is unaware of it; whatever is not overridden is the inner algorithm's."""

from dataclasses import dataclass, replace

from fedce.core.algorithm import Algorithm, State, Traits
from fedce.core.messages import Reply, Task
from fedce.core.params import Params
from fedce.core.site import Memory, Site


@dataclass(frozen=True)
class Wrapping(Algorithm):
    """`State.own` of a wrapping algorithm has a field `inner` with that of the inner algorithm."""

    inner: Algorithm

    @property
    def traits(self) -> Traits:
        return self.inner.traits

    @property
    def keeps(self) -> type | None:
        return self.inner.keeps

    @property
    def uses_errors(self) -> bool:
        return self.inner.uses_errors

    def local(self, site: Site, task: Task, memory: Memory | None) -> tuple[Reply, Memory]:
        return self.inner.local(site, task, memory)

    def evaluate(self, site: Site, task: Task, memory: Memory | None) -> Reply:
        return self.inner.evaluate(site, task, memory)

    def task(self, state: State, site: str) -> Task:
        return self.inner.task(of_inner(state), site)

    def returned(self, state: State) -> Params:
        return self.inner.returned(of_inner(state))


def of_inner(state: State) -> State:
    """The state as the inner algorithm sees it."""
    return replace(state, own=state.own.inner)
