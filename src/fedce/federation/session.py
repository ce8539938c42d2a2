"""A training session: the rounds that are left, the evaluation, the results."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fedce.base.config import Config
from fedce.base.errors import ReplyError, RunError
from fedce.base.files import write_bytes, write_tensors
from fedce.base.identity import coordinator
from fedce.core.algorithm import State
from fedce.core.draw import Draw
from fedce.core.messages import Choice, Member, Reply
from fedce.core.params import Params, completed, pooled, to_named
from fedce.data.pixels import written_values
from fedce.federation.asking import Engine, Rules
from fedce.federation.boundary import Boundary
from fedce.federation.challenge import Challenge
from fedce.federation.checkpoint import Checkpoints, load_saved, saved_line
from fedce.federation.lines import best_model, digests_of, end_line, round_line
from fedce.federation.loop import evaluate, rounds
from fedce.federation.plan import Participants, Plan
from fedce.guard import PROBATION
from fedce.pictures.examples import Example, example, write_examples
from fedce.record.entries import Continued, Round, Session
from fedce.record.folder import RunFolder
from fedce.record.ledger import FORMAT
from fedce.record.results import results_of
from fedce.site.cases import cases_csv
from fedce.tracking.following import Tracking


class RoundSeen(Protocol):
    """What an observer sees of a round."""

    @property
    def round_no(self) -> int: ...
    @property
    def mean_score(self) -> float: ...
    @property
    def shares(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Observer:
    """Callbacks of somebody who follows a run: notices, the start, and each round.

    >>> Observer(notice=print).notice("the ledger is not signed")
    the ledger is not signed
    """

    notice: Callable[[str], None] = lambda message: None
    start: Callable[[Config, Mapping[str, Member], int], None] = lambda config, members, first_round: None
    round: Callable[[RoundSeen], None] = lambda done: None


@dataclass(frozen=True)
class Result:
    """What a session gives: where the run is, and its results. `fedce.Result` adds what a user does with a run.

    >>> result = Result(Path("runs/example"), {"contributions": {"north": 0.75, "south": 0.25}})
    >>> result.contributions["north"]
    0.75
    """

    folder: Path
    values: Mapping[str, Any]
    """Everything in results.json."""
    failed_trackers: frozenset[str] = frozenset()
    """Trackers that could not be reached during the rounds; a notice has named them."""

    @property
    def contributions(self) -> dict[str, float]:
        """Each site's share; they sum to 1."""
        return dict(self.values["contributions"])

    @property
    def dice(self) -> dict[str, float]:
        """Each site's test Dice of the model that it uses."""
        return dict(self.values["dice"])

    @property
    def fairness(self) -> dict[str, float]:
        return dict(self.values["fairness"])


def signing(run_folder: RunFolder, observer: Observer) -> dict[str, str]:
    """Have the ledger's lines signed, and return the key for its start; without a key file nothing is signed."""
    try:
        identity = coordinator()
    except RunError as error:
        observer.notice(f"the ledger is not signed: {error}; set FEDCE_KEY to a file that can be written")
        return {}
    run_folder.sign = identity.sign
    return {"coordinator": identity.public}


def where_it_was(run_folder: RunFolder, plan: Plan) -> State:
    """The state to go on from; if its last round is missing in the ledger, it is added there."""
    if not run_folder.state_file.exists():
        return plan.initial_state()
    state, line = load_saved(run_folder.state_file, plan.initial_state())
    _record_if_missing(run_folder, line)
    if isinstance(plan, Participants) and isinstance(run_folder.ledger().part, Continued):
        gone = {*plan.config.leave_out, *state.expelled}
        state = replace(state, sites=tuple(sorted(plan.members.keys() - gone)))
    return state


def record_saved_round(run_folder: RunFolder) -> None:
    """Record a round that was saved just before a kill, so that whatever comes next follows it in the ledger."""
    if run_folder.state_file.exists():
        _record_if_missing(run_folder, saved_line(run_folder.state_file))


def _record_if_missing(run_folder: RunFolder, line: Mapping[str, Any] | None) -> None:
    if line is not None and line["round"] not in {done.round_no for done in run_folder.rounds()}:
        run_folder.append(line)


def check_unchanged(run_folder: RunFolder, part: Session, about: Mapping[str, Any]) -> None:
    """Raise a RunError unless the run is continued with the data and settings that it was started with."""
    check_data(run_folder, {site: facts["fingerprint"] for site, facts in about["sites"].items()})
    check_config(run_folder, part, about)


def check_data(run_folder: RunFolder, goes_on: Mapping[str, str]) -> None:
    """Raise a RunError unless these fingerprints of the sites' data are those that the run was started with."""
    began = run_folder.ledger().fingerprints
    for site in sorted(began.keys() | goes_on.keys()):
        before, now = began.get(site), goes_on.get(site)
        if before != now:
            what = "was added" if before is None else "is gone" if now is None else "has other data"
            raise RunError(
                f"site {site!r} {what} since {run_folder.path} was started; restore it as it was, or start a new run"
            )


def check_format(run_folder: RunFolder, part: Session) -> None:
    """Refuse to add lines of this version to a ledger of another one."""
    if part.format != FORMAT:
        raise RunError(
            f"{run_folder.ledger_file} has format {part.format}, and this version of fedce writes format {FORMAT}; "
            "go on with the version that began the run, or start a new run"
        )


def check_config(run_folder: RunFolder, part: Session, about: Mapping[str, Any]) -> None:
    check_format(run_folder, part)
    if part.config != about["config"]:
        raise RunError(
            f"{run_folder.config_file} was changed since the run was started; restore it, or start a new run"
        )


def finish(
    run_folder: RunFolder,
    plan: Plan,
    state: State,
    engine: Engine,
    observer: Observer,
    report: bool,
    boundary: Boundary | None = None,
) -> Result:
    """Run the rounds that are left, evaluate, and write the results."""
    config = plan.config
    boundary = boundary or Boundary(run_folder, observer.notice)
    recorded = {line.round_no: line for line in run_folder.rounds()}
    remote, tell_all = config.engine.name != "local", config.engine.tell == "all"
    # A site that is not drawn when the others save would lose what it has learned since its last save.
    every_round = remote or config.sites_per_round is not None
    challenge = Challenge(run_folder, config)
    seconds = 0.0 if every_round else config.engine.checkpoint_seconds
    checkpoints = Checkpoints(seconds, config.n_rounds, challenge.drawn)
    n_rounds = config.n_rounds if state.sites else 0
    observer.start(config, plan.members, state.round_no)
    if config.sites_per_round and n_rounds * config.sites_per_round < PROBATION * len(state.sites):
        observer.notice(
            f"{n_rounds} rounds with {config.sites_per_round} of {len(state.sites)} sites measure some of them in "
            f"fewer than {PROBATION} rounds: their shares will say little; set rounds higher"
        )
    rules = Rules(
        min_sites=min(config.engine.min_sites, len(state.sites)),
        persist=checkpoints.persist,
        detect=plan.detects,
        leave_out=config.leave_out,
        gone=boundary.gone,
        tell_all=tell_all,
        limits=plan.limits,
        draw=Draw(config.sites_per_round, config.seed) if config.sites_per_round else None,
        patience=config.patience,
        ballots=plan.ballots,
        judge=plan.judge,
        challenge=challenge,
        n_cases=plan.n_cases,
        pack=config.pack,
        secret=plan.secret,
    )
    # The trackers with which the run was started: a later call may come from elsewhere.
    with Tracking(run_folder, run_folder.config.tracking, observer.notice) as tracking:
        for done in rounds(plan.algorithm, state, engine, n_rounds, rules):
            content = round_line(done, plan.members, config.leave_out)
            line = run_folder.checked(content)
            assert isinstance(line, Round)
            # The state first: a round that was saved but not yet recorded is recorded on resume.
            checkpoints.save(run_folder.state_file, done.state, content)
            if done.round_no in recorded:
                _check_same(run_folder, recorded[done.round_no], line)
            else:
                run_folder.append(content)
            state = done.state
            observer.round(done)
            tracking.look()
    state = replace(state, params=plan.algorithm.returned(state))
    gone = boundary.gone(state.round_no)
    here = sorted(plan.members.keys() - gone.keys())
    drawn = challenge.before(state.round_no)
    replies, rejected = evaluate(plan.algorithm, state, engine, here, tell_all, plan.measures, plan.whole_layout, drawn)
    if not replies:
        raise ReplyError(f"no site could evaluate the model ({rejected or 'no replies'})")
    _write_models(run_folder, plan, state, replies)
    # Evaluations recorded before a kill count, even if a site did not answer a second time.
    if run_folder.ledger().end is None:
        end = end_line(plan, state, replies, rejected, gone)
        _write_cases(run_folder, replies)
        if report and isinstance(plan, Participants):
            examples = _examples(plan, state, replies)
            write_examples(run_folder.examples_file, examples)
            end["example_dice"] = {site: found.dice for site, found in examples.items()}
        run_folder.append({**end, **challenge.revealed, "files": digests_of(run_folder, replies)})
    # An existing page would show earlier results, and would be taken for this run's report.
    run_folder.report_file.unlink(missing_ok=True)
    run_folder.write_results(results_of(config, run_folder.ledger(), over_rounds=report))
    return Result(run_folder.path, run_folder.results, tracking.failed)


def _check_same(run_folder: RunFolder, recorded: Round, again: Round) -> None:
    """Raise a RunError unless a round that is run again after a resume gives what the ledger says."""
    for site, facts in again.facts.items():
        before = recorded.facts.get(site, {})
        for key in ("weight", "score", "loss", "cos", "err"):
            if before.get(key) != facts[key]:
                raise RunError(
                    f"{run_folder.path}: round {again.round_no + 1}, run again, gives site {site!r} another {key} than "
                    "the ledger; was it started on another machine, on another device or with other versions?"
                )


def _write_models(run_folder: RunFolder, plan: Plan, state: State, replies: Mapping[str, Reply]) -> None:
    classes = {name: list(values) for name, values in plan.first.classes.items()}

    def write(path: Path, params: Params, trained_by: Iterable[Member]) -> None:
        about = {
            "classes": classes,
            "written": written_values(classes, [member.mask_values for member in trained_by]),
            "shape": (plan.n_channels, *plan.spatial),
            "volumes": any(member.volumes for member in plan.members.values()),
            "modalities": any(member.modalities for member in plan.members.values()),
        }
        write_tensors(path, to_named(params), about)

    own = {site: reply.params for site, reply in replies.items() if reply.params is not None and plan.personal}
    if not plan.algorithm.traits.personal:
        federated = {site: model for site, model in own.items() if _keeps(replies[site]) != "alone"}
        write(run_folder.model_file, _common_model(plan, state.params, federated), plan.members.values())
        if (best := best_model(state, replies)) is not None:
            write(run_folder.best_file, _common_model(plan, best, federated), plan.members.values())
    for site, params in own.items():
        write(run_folder.site_model_file(site), params, [plan.members[site]])


def _write_cases(run_folder: RunFolder, replies: Mapping[str, Reply]) -> None:
    """Write the single cases of sites on this machine; sites elsewhere keep theirs."""
    cases = {site: reply.evaluation.cases for site, reply in replies.items() if reply.evaluation}
    if any(cases.values()):
        write_bytes(run_folder.cases_file, cases_csv(cases))


def _keeps(reply: Reply) -> Choice:
    beside = reply.evaluation.beside if reply.evaluation else None
    return beside.keeps if beside else "common"


def _common_model(plan: Plan, exchanged: Params, own: Mapping[str, Params]) -> Params:
    """The model for somebody who has no model of their own.

    If some entries stay at the sites, they are pooled from the models that the sites send at the end.
    """
    if plan.layout == plan.whole_layout:
        return exchanged
    return completed(exchanged, pooled([own[site] for site in sorted(own)]) if own else plan.learner.initial)


def _examples(participants: Participants, state: State, replies: Mapping[str, Reply]) -> dict[str, Example]:
    """What each site's model finds in the site's first test case; only for sites whose images are on this machine."""
    learner, found = participants.learner, {}
    for data in participants.sites:
        own = replies[data.name].params if data.name in replies else None
        learner.load(own if own is not None else state.params)
        found[data.name] = example(data, learner.predict)
    return found
