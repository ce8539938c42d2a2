"""FedCE in a few processes and nothing else: no records, no checks, no checkpoints, no report.

Models and Adam's moments lie in memory that the forked workers share, so that only names and numbers are sent; a free
worker takes the next site, the largest first.
"""

import multiprocessing
from collections.abc import Callable, Mapping
from mmap import mmap
from time import perf_counter

import torch
from benchmarks.contestants.given import SITES, Given
from benchmarks.contestants.work import Site, adam, network, read, score, train, without
from torch import Tensor, nn

N_WORKERS = 2
Weights = Mapping[str, float | None]


def shared(tensor: Tensor) -> Tensor:
    """A copy in memory that processes share after a fork."""
    copy = torch.frombuffer(mmap(-1, tensor.nbytes), dtype=tensor.dtype).view(tensor.shape)
    return copy.copy_(tensor)


class Loop:
    """The sites, their networks, and the workers; one worker is this process."""

    def __init__(
        self,
        sites: Mapping[str, Site],
        make_network: Callable[[], nn.Module],
        n_workers: int,
        note: Callable[..., None] = lambda site, **values: None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.sites, self.make_network, self.n_workers, self.note = sites, make_network, n_workers, note
        self.clock = clock
        self.names = sorted(sites, key=lambda name: -len(sites[name].train))
        self.scratch = make_network()
        self.w = {key: shared(value) for key, value in self.scratch.state_dict().items()}
        self.networks = {name: self._shared_network() for name in self.names}
        self.optimizers = {name: self._shared_adam(model) for name, model in self.networks.items()}
        context = multiprocessing.get_context("fork")
        self.tasks, self.answers = context.SimpleQueue(), context.SimpleQueue()
        self.workers = [context.Process(target=self._work) for _ in range(n_workers if n_workers > 1 else 0)]

    def _shared_network(self) -> nn.Module:
        model = self.make_network()
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = shared(tensor.data)
        return model

    @staticmethod
    def _shared_adam(model: nn.Module) -> torch.optim.Adam:
        optimizer = adam(model)
        for parameter in model.parameters():
            moments = {name: shared(torch.zeros_like(parameter)) for name in ("exp_avg", "exp_avg_sq")}
            optimizer.state[parameter] = {"step": shared(torch.zeros(())), **moments}
        return optimizer

    def _work(self) -> None:
        while (task := self.tasks.get()) is not None:
            answer_of, name, rho = task
            self.answers.put((name, getattr(self, answer_of)(name, rho)))

    def _ask(self, answer_of: str, rho: Weights) -> dict[str, float | None]:
        if not self.workers:
            return {name: getattr(self, answer_of)(name, rho[name]) for name in self.names}
        for name in self.names:
            self.tasks.put((answer_of, name, rho[name]))
        return dict(self.answers.get() for _ in self.names)

    def train(self, name: str, rho: float | None) -> float | None:
        """A site's part of a round; returns the error of the model without it, if it has sent a model before."""
        model, site, error = self.networks[name], self.sites[name], None
        if rho is not None:
            self.scratch.load_state_dict(without(self.w, model.state_dict(), rho))
            error = 1 - score(self.scratch, site.validation)
        model.load_state_dict(self.w)
        dice = score(model, site.validation)
        self.note(name, dice=dice, **train(model, self.optimizers[name], site.train))
        return error

    def test(self, name: str, _: None) -> None:
        self.scratch.load_state_dict(self.w)
        self.note(name, test=score(self.scratch, self.sites[name].test))

    def run(self, n_rounds: int) -> list[float]:
        """Seconds of each round."""
        for worker in self.workers:
            worker.start()
        n, seconds = len(self.names), []
        rho: Weights = dict.fromkeys(self.names, 1 / n)
        credit = dict.fromkeys(self.names, 0.0)
        for round_no in range(n_rounds):
            start = self.clock()
            errors = self._ask("train", rho if round_no else dict.fromkeys(self.names))
            rho = self._aggregate(rho, credit, errors if round_no else dict.fromkeys(self.names, 1 / n))
            seconds.append(self.clock() - start)
        self._ask("test", dict.fromkeys(self.names))
        for _ in self.workers:
            self.tasks.put(None)
        for worker in self.workers:
            worker.join()
        return seconds

    def _aggregate(self, rho: Weights, credit: dict[str, float], errors: Mapping[str, float]) -> Weights:
        """FedCE's product: aggregate by the credit so far, then add this round's novelty times error to the credit."""
        trainable = [key for key, _ in self.scratch.named_parameters()]
        sent = {name: self.networks[name].state_dict() for name in self.names}
        deltas = {
            name: torch.cat([(own[key] - self.w[key]).flatten() for key in trainable]) for name, own in sent.items()
        }
        total = sum(rho[name] * delta for name, delta in deltas.items())
        cos = {
            name: 1 - torch.cosine_similarity(delta, total - rho[name] * delta, 0).item()
            for name, delta in deltas.items()
        }
        for name in self.names:
            credit[name] += cos[name] / sum(cos.values()) * errors[name] / sum(errors.values())
        rho = {name: credit[name] / sum(credit.values()) for name in self.names}
        for key, value in self.w.items():
            mean = sum(rho[name] * sent[name][key] for name in self.names) if value.is_floating_point() else None
            value.copy_(sent[self.names[0]][key] if mean is None else mean)
        return rho


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = Given.here()
    sites = {name: read(given.data / name, given.job.images) for name in SITES}
    Loop(sites, lambda: network(given.job), N_WORKERS, given.note).run(given.job.rounds)
