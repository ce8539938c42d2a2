"""The command line. Bad input ends with one clear line and exit code 2."""

import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec

import click

from fedce import __version__
from fedce.errors import ConfigError, EngineError, FedceError, ManyProblems
from fedce.words import printable

if TYPE_CHECKING:
    from fedce.config import Config
    from fedce.ledger import Verdict

P = ParamSpec("P")
STUDY_SCALES = {"quick": (20, "0", 12), "paper": (60, "0,1,2", 48)}
"""Rounds and seeds of a study, and sites of the largest federation in the scaling study."""
UNMATCHED_SHOWN = 5


trust_code_option = click.option(
    "--trust-code", is_flag=True, help="Run the Python code that the run's network or loss is named by."
)


def one_line_errors(command: Callable[P, None]) -> Callable[P, None]:
    """A user's mistake is one line on stderr and exit code 2, never a traceback."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _terminable():
                command(*args, **kwargs)
        except ManyProblems as error:
            _fail(str(error))
        except FedceError as error:
            _fail(" ".join(str(error).split()))
        except BrokenPipeError:  # Whoever reads it has seen enough, as in 'fedce ledger show RUN | head'.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        except OSError as error:
            _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
        except KeyboardInterrupt as stop:
            _stopped(stop, "the same command goes on where it was")

    return wrapped


class Terminated(KeyboardInterrupt):
    """SIGTERM, which schedulers send, and the only one to reach a job in the background: a stop, as by Ctrl-C."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Have SIGTERM end a command in order: whatever it started ends too, and it says how to go on."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # A second one must not cut off the first.
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # Only there can signals be handled.
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stopped(stop: KeyboardInterrupt, how: str) -> NoReturn:
    click.echo(f"\nfedce: stopped; {how}", err=True)
    sys.exit(143 if isinstance(stop, Terminated) else 130)


def numbers_of(seeds: str) -> list[int]:
    try:
        return [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds: expected whole numbers such as 0,1,2, got {seeds!r}") from None


def _fail(message: str) -> NoReturn:
    click.echo(f"fedce: {printable(message, kept=chr(10))}", err=True)
    sys.exit(2)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedce")
def main() -> None:
    """Fair federated segmentation: one model across hospitals, and what each contributed to it."""


@main.command()
@click.argument("config_file", metavar="[CONFIG.toml]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--algorithm",
    metavar="NAME",
    help="fedce (default), fedce-sum, fedavg, uniform, standalone, qfedavg, ...; README.md lists all.",
)
@click.option("--data", metavar="NAME|DIR", help="fundus6, prostate6, or a folder DIR/<site>/{images,masks}/*.png.")
@click.option("--scale", metavar="SCALE", help="Size of fundus6 and prostate6: tiny, demo or paper.")
@click.option("--rounds", type=int, metavar="N", help="Communication rounds.")
@click.option("--seed", type=int, metavar="N", help="Seed of the initial weights and of local training.")
@click.option("--workers", type=int, metavar="N", help="Worker processes; 0 (default): one for each core.")
@click.option("--engine", metavar="NAME", help="local (default), flower or nvflare; the same numbers on each.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Run folder; default runs/DATA-ALGORITHM-SEED."
)
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any key of the file: --set train.lr=3e-4."
)
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR", help="Continue the run in DIR.")
@click.option("--replace", is_flag=True, help="Replace a run that is already in the run folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, and nothing else.")
@one_line_errors
def run(
    config_file: Path | None,
    algorithm: str | None,
    data: str | None,
    scale: str | None,
    rounds: int | None,
    seed: int | None,
    workers: int | None,
    engine: str | None,
    out: Path | None,
    assignments: tuple[str, ...],
    resume: Path | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Train one model across sites; record who contributed what."""
    from fedce.config import BUILT_IN, load, parse_assignment

    named = {
        "algorithm.name": algorithm,
        "data.source": data,
        "data.scale": scale,
        "rounds": rounds,
        "seed": seed,
        "engine.workers": workers,
        "engine.name": engine,
    }
    changes = {key: value for key, value in named.items() if value is not None}
    changes |= dict(parse_assignment(text) for text in assignments)
    command = shlex.join(["fedce", *sys.argv[1:]])
    if resume is not None:
        refused = [key for key in changes if key != "engine.workers"]
        refused += ["--out"] * (out is not None) + ["--replace"] * replace + ["--set"] * bool(assignments)
        if config_file or refused:
            what = refused[0] if refused else config_file
            raise ConfigError(f"--resume continues a run as it was started; leave out {what} (--workers may change)")
        _conduct(None, resume, workers, False, as_json, command)
        return
    if config_file is not None and config_file.is_dir():
        raise ConfigError(
            f"{config_file} is a folder: --data {config_file} if it holds sites, --resume if it holds a run"
        )
    config = load(config_file, changes)
    if scale is not None and config.data.source not in BUILT_IN and Path(config.data.source).exists():
        raise ConfigError(
            f"--scale is for {' and '.join(BUILT_IN)}; images of a folder are resized by --set data.size=N"
        )
    _conduct(config, out or default_out(config), None, replace, as_json, command)


def default_out(config: "Config") -> Path:
    source = Path(config.data.source).name
    return Path("runs") / f"{source}-{config.algorithm.name.replace(':', '.')}-{config.seed}"


def _conduct(
    config: "Config | None", out: Path, workers: int | None, replace: bool, as_json: bool, command: str
) -> None:
    """Run or resume with a display, and print the results."""
    from fedce.present.progress import RunDisplay

    with RunDisplay(quiet=as_json, out=out) as display:
        display.notice("starting (importing torch and MONAI)")
        from fedce import experiment
        from fedce.files import write_bytes
        from fedce.present.reported import complete
        from fedce.record import RunFolder

        observer = experiment.Observer(display.notice, display.start, display.round)
        try:
            carried = config or RunFolder.open(out).config
            if carried.engine.name != "local":
                carrier = import_module(f"fedce.engines.{carried.engine.name}")
                result = carrier.run_here(carried, out, observer, command, resume=config is None, replace=replace)
            elif config is None:
                result = experiment.resume(out, workers=workers, observer=observer, command=command)
            else:
                result = experiment.execute(config, out, replace=replace, observer=observer, command=command)
            complete(result)
        except EngineError as error:
            hint = f"; continue with 'fedce run --resume {out}'"
            if error.trace:
                log = RunFolder(out).log_file
                write_bytes(log, error.trace.encode())
                hint = f" (details in {log}){hint}"
            raise EngineError(f"{error}{hint}") from None
        except KeyboardInterrupt as stop:
            display.stop()
            begun = RunFolder(out).config_file.exists()
            _stopped(stop, f"continue with 'fedce run --resume {out}'" if begun else "nothing was begun")
        display.finish(result.values)
    if as_json:
        click.echo(json.dumps({"run": str(out), **result.values}, indent=2))


@main.command()
@click.argument("engine", type=click.Choice(["flower", "nvflare"]))
@click.argument("config_file", metavar="CONFIG.toml", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", required=True, help="Folder to write; new.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="As in fedce run.")
@one_line_errors
def deploy(engine: str, config_file: Path, out: Path, assignments: tuple[str, ...]) -> None:
    """Write what a federation of real hospitals runs: a Flower app, or an NVFlare job."""
    from fedce.config import load, parse_assignment

    changes = dict(parse_assignment(text) for text in assignments)
    config = load(config_file, {**changes, "engine.name": engine})
    click.echo(import_module(f"fedce.engines.{engine}").deploy(config, out))


@main.command()
@click.argument("folder", metavar="RUN|STUDY|FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--standalone",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="A finished run of standalone on the same data: show what each site reaches alone.",
)
@click.option("--no-examples", is_flag=True, help="Leave out the example images, to share the page without patients'.")
@one_line_errors
def report(folder: Path, standalone: Path | None, no_examples: bool) -> None:
    """Write report.html of a run or a study again, or of all runs in a folder side by side."""
    from fedce.present.pages.folder import write_folder_report
    from fedce.present.pages.run import write_report
    from fedce.present.pages.study import write_study_report
    from fedce.record import RunFolder

    if folder.is_dir() and not RunFolder(folder).config_file.exists():
        if standalone or no_examples:
            raise ConfigError(f"{folder} is no run; --standalone and --no-examples are for the report of one")
        write = write_study_report if (folder / "study.json").exists() else write_folder_report
        click.echo(write(folder))
        return
    alone = RunFolder.open(standalone) if standalone else None
    click.echo(write_report(RunFolder.open(folder), standalone=alone, examples=not no_examples))


@main.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port on this machine; 0 (default): a free one.",
)
@click.option("--no-browser", is_flag=True, help="Print the address and open nothing.")
@one_line_errors
def watch(run_folder: Path, port: int, no_browser: bool) -> None:
    """Show RUN on a local page that updates itself, while it goes on and after; Ctrl-C ends the page, not the run."""
    from fedce.present.watch import Watch, WatchServer, open_browser
    from fedce.record import RunFolder

    # Ctrl-C is how a page is ended, so it is neither an error nor something to go on with.
    with suppress(KeyboardInterrupt), WatchServer(Watch(RunFolder.open(run_folder)), port) as server:
        click.echo(f"watching {run_folder} at {server.address} (Ctrl-C ends it)")
        if not no_browser:
            open_browser(server.address)
        server.serve_forever()


@main.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("images", metavar="IMAGES...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Where the masks go.")
@click.option("--site", metavar="NAME", help="Use this site's own model, where each site has one.")
@trust_code_option
@one_line_errors
def predict(run_folder: Path, images: tuple[Path, ...], out: Path, site: str | None, trust_code: bool) -> None:
    """Segment images with a run's model: a mask and an overlay picture for each."""
    from fedce.predict import predict_files

    for path in predict_files(run_folder, images, out, site, trust_code=trust_code):
        click.echo(path)


@main.command()
@click.argument("target", metavar="RUN|CONFIG", type=click.Path(path_type=Path))
@click.option(
    "--method", default="loo", metavar="METHOD", help="loo (leave-one-out, default), shapley, reconstruction."
)
@click.option("--store", type=click.Path(path_type=Path), default=Path("runs/store"), help="Where trainings are kept.")
@click.option("--out", type=click.Path(path_type=Path), help="Where the values go; default RUN/value-METHOD.json.")
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Trainings at a time; 0: one a core.",
)
@click.option("--yes", is_flag=True, help="Do not ask before a long job.")
@click.option("--json", "as_json", is_flag=True, help="Print the values as JSON, and nothing else.")
@one_line_errors
def value(target: Path, method: str, store: Path, out: Path | None, workers: int, yes: bool, as_json: bool) -> None:
    """What each site is worth: ground truth by training again, and how well the contributions agree with it."""
    from fedce.present.progress import JobsDisplay
    from fedce.present.tables import value_table

    with JobsDisplay(quiet=as_json) as display:
        display.notice("starting (importing torch and MONAI)")
        from fedce import value as valuing
        from fedce.files import write_sealed
        from fedce.jobs import Store
        from fedce.present.pages.run import write_report
        from fedce.record import RunFolder

        valuing.check_method(method)
        config = valuing.config_of(target)
        kept = Store(store, display.notice)
        sites = [site.name for site in kept.sites(config.data)]
        display.estimate(kept, valuing.trainings(config, method, sites), workers, ask=not (yes or as_json))
        found = valuing.value(config, method, kept, workers, display.progress)
        place = out or (target if target.is_dir() else target.parent) / f"value-{method}.json"
        write_sealed(place, found.as_dict())
        display.show(value_table(found))
        display.notice(f"written to {place}")
        run = RunFolder(target)
        if place.parent == target and run.results_file.exists():
            display.notice(f"{write_report(run)} shows it too")
    if as_json:
        click.echo(json.dumps(found.as_dict(), indent=2))


@main.command()
@click.argument("config_file", metavar="[CONFIG.toml]", required=False, type=click.Path(path_type=Path))
@click.option("--algorithms", required=True, metavar="A,B,C", help="Names as in fedce run --algorithm.")
@click.option("--seeds", default="0,1,2", metavar="0,1,2", help="Training seeds; default 0,1,2.")
@click.option("--truth", metavar="METHOD", help="Compare contributions with loo, shapley or reconstruction values.")
@click.option("--truth-by", default="fedce", metavar="NAME", help="The algorithm that is trained again for the truth.")
@click.option("--data", metavar="NAME|DIR", help="As in fedce run.")
@click.option("--scale", metavar="SCALE", help="As in fedce run.")
@click.option("--rounds", type=int, metavar="N", help="As in fedce run.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="As in fedce run.")
@click.option("--store", type=click.Path(path_type=Path), default=Path("runs/store"), help="Where trainings are kept.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Where the tables go; default runs/compare-DATA."
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Trainings at a time; 0: one a core.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON, and nothing else.")
@one_line_errors
def compare(
    config_file: Path | None,
    algorithms: str,
    seeds: str,
    truth: str | None,
    truth_by: str,
    data: str | None,
    scale: str | None,
    rounds: int | None,
    assignments: tuple[str, ...],
    store: Path,
    out: Path | None,
    workers: int,
    as_json: bool,
) -> None:
    """Several algorithms, several seeds, one table; nothing is trained twice."""
    from fedce.config import load, parse_assignment
    from fedce.present.progress import JobsDisplay
    from fedce.present.tables import compare_tables, truth_table

    named = {"data.source": data, "data.scale": scale, "rounds": rounds}
    changes = {key: value for key, value in named.items() if value is not None}
    changes |= dict(parse_assignment(text) for text in assignments)
    config = load(config_file, changes)
    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    numbers = numbers_of(seeds)
    if not names:
        raise ConfigError(f"--algorithms: expected names such as fedavg,fedce, got {algorithms!r}")
    for number in numbers:
        load(config_file, {**changes, "seed": number})
    with JobsDisplay(quiet=as_json) as display:
        display.notice("starting (importing torch and MONAI)")
        from fedce import compare as comparing
        from fedce import value as valuing
        from fedce.jobs import Store

        kept = Store(store, display.notice)
        configs = comparing.plan(config, names, numbers)
        sites = [site.name for site in kept.sites(config.data)]
        if truth:
            configs += valuing.trainings_by(config, truth, truth_by, numbers, sites)
        display.estimate(kept, configs, workers, ask=False)
        found = (
            valuing.truth_over_seeds(config, truth, truth_by, numbers, kept, workers, display.progress)
            if truth
            else None
        )
        shares = found.shares if found else None
        rows = comparing.compare(config, names, numbers, kept, truth=shares, workers=workers, progress=display.progress)
        folder = out or Path("runs") / f"compare-{Path(config.data.source).name}"
        about = {
            "command": shlex.join(["fedce", *sys.argv[1:]]),
            "seeds": numbers,
            "truth": asdict(found) if found else None,
        }
        comparing.write(folder, rows, about)
        display.show(*compare_tables(rows, display.stdout.width), *([truth_table(found)] if found else []))
        display.notice(f"written to {folder}")
    if as_json:
        click.echo((folder / "compare.json").read_text("utf-8"))


@main.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--budget", required=True, metavar="AMOUNT", help="What is to be shared, such as 100000 or 2500.50.")
@click.option("--floor", default="0%", metavar="SHARE", help="The least that any site gets, such as 2%.")
@click.option("--cap", default="100%", metavar="SHARE", help="The most that any site gets, such as 40%.")
@click.option("--rule", default="contribution", metavar="RULE", help="contribution (default), samples, equal, mix.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="The page; default RUN/allocation.html.")
@click.option("--yes", is_flag=True, help="Allocate also where the contributions are too uncertain to pay by them.")
@click.option("--json", "as_json", is_flag=True, help="Print the amounts as JSON, and nothing else.")
@one_line_errors
def allocate(
    run_folder: Path, budget: str, floor: str, cap: str, rule: str, out: Path | None, yes: bool, as_json: bool
) -> None:
    """Share a budget by a run's contributions, exactly to the cent, with other rules beside."""
    from fedce import allocation
    from fedce.ledger import checked
    from fedce.present.pages.allocation import override, write_allocation
    from fedce.present.sentences import in_doubt
    from fedce.present.tables import allocation_tables
    from fedce.present.terminal import Terminal
    from fedce.record import RunFolder

    allocation.check_rule(rule)
    run = RunFolder.open(run_folder)
    found = checked(run)
    payouts = allocation.allocate(found.results, budget, floor, cap)
    doubts = allocation.doubts_of(rule, found.results)
    allocation.check_doubts(rule, doubts, yes)
    page = write_allocation(run, found, payouts, rule, (budget, floor, cap), doubts, out)
    for sentence in (*override(doubts), *in_doubt(found.doubt)):
        click.echo(sentence, err=True)
    if as_json:
        click.echo(json.dumps({name: asdict(payout) for name, payout in payouts.items()}, indent=2, default=str))
        return
    terminal = Terminal(quiet=False)
    terminal.show(*allocation_tables(payouts, rule, terminal.stdout.width))
    click.echo(page)


@main.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--site", metavar="NAME", help="One member's page: its own share and interval, nothing of the others.")
@click.option("--epsilon", type=float, metavar="E", help="All shares, with noise: differentially private.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="The page; default RUN/member-NAME.html.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON, and nothing else.")
@one_line_errors
def publish(run_folder: Path, site: str | None, epsilon: float | None, out: Path | None, as_json: bool) -> None:
    """What may go out of a consortium: one member's own view, or everybody's shares with differential privacy."""
    from fedce import publish as publishing
    from fedce.present.pages.member import write_member
    from fedce.record import RunFolder

    if (site is None) == (epsilon is None):
        raise ConfigError("give either --site NAME or --epsilon E")
    run = RunFolder.open(run_folder)
    if site is not None:
        if as_json:
            click.echo(json.dumps(publishing.member_view(run, site), indent=2))
        else:
            click.echo(write_member(run, site, out))
        return
    assert epsilon is not None
    if out is not None:
        raise ConfigError("--out is for --site; shares with noise are printed, and kept in the ledger")
    found, spent = publishing.publish(run, epsilon)
    if as_json:
        click.echo(json.dumps({**asdict(found), "scale": found.scale, "epsilon_so_far": spent}, indent=2))
        return
    for name, share in found.shares.items():
        click.echo(f"{printable(name)}: {100 * share:.1f} %")
    click.echo(
        f"noise of {100 * found.scale:.1f} points on each, epsilon {epsilon:g} for one validation case; "
        f"all publications of this run together: {spent:g}"
    )
    if found.scale > 1 / len(found.shares):
        click.echo("the noise is larger than an equal share: with so few validation cases these say nothing", err=True)


@main.command()
@click.argument("name", metavar="STUDY")
@click.argument("config_file", metavar="[CONFIG.toml]", required=False, type=click.Path(path_type=Path))
@click.option("--data", metavar="NAME|DIR", help="As in fedce run.")
@click.option(
    "--scale",
    type=click.Choice(["quick", "paper"]),
    default="quick",
    help="quick: 20 rounds, one seed; paper: 60 rounds, three seeds.",
)
@click.option("--seeds", metavar="0,1,2", help="Training seeds; default by the scale.")
@click.option("--rounds", type=int, metavar="N", help="Communication rounds; default by the scale.")
@click.option("--methods", metavar="A,B,C", help="Which algorithms are compared; default the paper's.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="As in fedce run.")
@click.option("--store", type=click.Path(path_type=Path), default=Path("runs/store"), help="Where trainings are kept.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Default runs/study-NAME-DATA.")
@click.option(
    "--workers", type=click.IntRange(min=0), default=0, metavar="N", help="Trainings at a time; 0: one a core."
)
@click.option("--json", "as_json", is_flag=True, help="Print the study as JSON, and nothing else.")
@one_line_errors
def study(
    name: str,
    config_file: Path | None,
    data: str | None,
    scale: str,
    seeds: str | None,
    rounds: int | None,
    methods: str | None,
    assignments: tuple[str, ...],
    store: Path,
    out: Path | None,
    workers: int,
    as_json: bool,
) -> None:
    """Tables and figures of the paper: performance, fairness, contribution, convergence, free-rider, shift, ablation,
    qualitative, data, scaling, theory; several with commas between, or all. Beyond the paper: robustness."""
    from fedce.config import load, parse_assignment
    from fedce.present.progress import JobsDisplay
    from fedce.present.tables import study_tables

    n_rounds, default_seeds, largest = STUDY_SCALES[scale]
    changes: dict[str, Any] = {} if config_file else {"rounds": n_rounds}
    named = {"data.source": data, "rounds": rounds}
    changes |= {key: value for key, value in named.items() if value is not None}
    config = load(config_file, changes | dict(parse_assignment(text) for text in assignments))
    with JobsDisplay(quiet=as_json) as display:
        display.notice("starting (importing torch and MONAI)")
        from fedce import studies
        from fedce.files import read_sealed
        from fedce.jobs import Store
        from fedce.present.pages.study import write_study_report
        from fedce.studies import writing

        names = studies.wanted(name)
        kept = Store(store, display.notice)
        numbers = numbers_of(seeds or default_seeds)
        compared = tuple(methods.split(",")) if methods else studies.METHODS
        context = studies.Context(config, numbers, kept, compared, largest)
        display.estimate(kept, studies.needed(names, context), workers, ask=False)
        outcomes = studies.conduct(names, context, workers, display.progress)
        folder = out or Path("runs") / f"study-{name}-{Path(config.data.source).name}"
        writing.write(folder, outcomes, studies.about(context, shlex.join(["fedce", *sys.argv[1:]])))
        # From the files, so that 'fedce report' gives the same page again.
        page = write_study_report(folder)
        display.show(*study_tables(outcomes, display.stdout.width))
        display.notice(f"written to {page}")
    if as_json:
        click.echo(json.dumps(read_sealed(folder / "study.json"), indent=2, ensure_ascii=False))


@main.command()
@click.argument("config_file", metavar="[CONFIG.toml]", required=False, type=click.Path(path_type=Path))
@click.option("--data", metavar="NAME|DIR", help="As in fedce run.")
@click.option("--scale", metavar="SCALE", help="As in fedce run.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="As in fedce run.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="As in fedce run.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON, and nothing else.")
@one_line_errors
def doctor(
    config_file: Path | None,
    data: str | None,
    scale: str | None,
    out: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Look at everything that can be known before round 1; exit code 2 if a run would fail."""
    from fedce.config import load, parse_assignment
    from fedce.present.progress import FindingsDisplay

    named = {"data.source": data, "data.scale": scale}
    changes = {key: value for key, value in named.items() if value is not None}
    config = load(config_file, changes | dict(parse_assignment(text) for text in assignments))
    display = FindingsDisplay(quiet=as_json)
    display.notice("starting (importing torch and MONAI)")
    from fedce.doctor import examine, verdict_of

    findings = []
    for finding in examine(config, out or default_out(config), display.notice):
        findings.append(finding)
        display.tell(finding)
    verdict = verdict_of(findings)
    display.finish(verdict["ready"])
    if as_json:
        click.echo(json.dumps(verdict, indent=2))
    if not verdict["ready"]:
        sys.exit(2)


@main.group()
def ledger() -> None:
    """A run's record: what happened, and whether anybody changed it."""


@ledger.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--coordinator", metavar="KEY", help="The coordinator's public key, if you know it from elsewhere.")
@click.option("--head", metavar="HASH", help="A line's hash that you noted down before; it must still be there.")
@click.option("--site", "keys", multiple=True, metavar="NAME=KEY", help="A site's public key, such as your own.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON, and nothing else.")
@one_line_errors
def verify(run_folder: Path, coordinator: str | None, head: str | None, keys: tuple[str, ...], as_json: bool) -> None:
    """Check the chain, all signatures, and every result from what was recorded.

    Exit code 0: sound, and signed by a coordinator's key that you gave or hold; 3: consistent, but unsigned, or signed
    by a key that nobody vouches for; 1: something is wrong; 2: it can't be checked.
    """
    from fedce.keys import checked_key
    from fedce.ledger import verify as verified
    from fedce.record import RunFolder

    if wrong := [pair for pair in keys if "=" not in pair]:
        raise ConfigError(f"--site: expected NAME=KEY, got {wrong[0]!r}")
    pinned = {name: key for name, _, key in (pair.partition("=") for pair in keys)}
    for key in (*pinned.values(), *([coordinator] if coordinator is not None else [])):
        try:
            checked_key(key)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    verdict = verified(RunFolder.open(run_folder), coordinator, head, pinned)
    _tell("the ledger", verdict, as_json, proves=verdict.proves)
    if verdict.doubt:
        sys.exit(3)


def _tell(what: str, verdict: "Verdict", as_json: bool, **more: str) -> None:
    """A verdict for people or programs; exit code 1 if something is wrong."""
    if as_json:
        click.echo(json.dumps({"sound": verdict.sound, **more, **asdict(verdict)}, indent=2))
    else:
        for fact in verdict.facts:
            click.echo(f"checked: {printable(fact)}")
        for reason in verdict.unchecked:
            click.echo(f"not checked: {printable(reason)}")
        for problem in verdict.problems:
            click.echo(f"WRONG: {printable(problem)}")
        if not verdict.sound:
            click.echo(f"{what} is not sound: {len(verdict.problems)} found")
        else:
            click.echo(f"{what} is consistent, but {verdict.doubt}" if verdict.doubt else f"{what} is sound")
    if not verdict.sound:
        sys.exit(1)


@ledger.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--site", required=True, metavar="NAME", help="Whose word is checked.")
@click.option("--data", required=True, metavar="DIR", help="The site's folder, or one that holds it.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON, and nothing else.")
@trust_code_option
@one_line_errors
def audit(run_folder: Path, site: str, data: str, as_json: bool, trust_code: bool) -> None:
    """Where the site's images are: check what it said of them with the run's model; exit code 1 if it was not so."""
    from fedce.audit import audit as audited
    from fedce.record import RunFolder

    _tell(f"what {site} said", audited(RunFolder.open(run_folder), site, data, trust_code=trust_code), as_json)


@ledger.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@one_line_errors
def show(run_folder: Path) -> None:
    """Print the ledger, a line for each entry."""
    from datetime import UTC, datetime

    from fedce.ledger import summary_of
    from fedce.record import RunFolder

    for number, entry in enumerate(RunFolder.open(run_folder).ledger(), 1):
        when = datetime.fromtimestamp(entry["time"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        click.echo(f"{number:4} {when} {printable(entry['kind']):6} {summary_of(entry)}")


@main.group()
def keys() -> None:
    """A site's key: it says who a site is, signs what it sends, and never leaves its place."""


@keys.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@one_line_errors
def new(path: Path) -> None:
    """Make a private key that only its owner can read, and print the public key, which the coordinator needs."""
    from fedce.identity import Identity

    path = path.expanduser()
    if path.exists():
        raise ConfigError(f"{path} exists; 'fedce keys show {path}' prints its public key")
    click.echo(Identity.at(path).public)


@keys.command("show")
@click.argument("path", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@one_line_errors
def show_key(path: Path | None) -> None:
    """Print the public key of a private key; without FILE, of this machine's coordinator ($FEDCE_KEY)."""
    from fedce.identity import Identity, coordinator_file

    path = path.expanduser() if path else coordinator_file()
    if not path.exists():
        raise ConfigError(f"{path} does not exist; 'fedce keys new {path}' makes a key")
    click.echo(Identity.at(path).public)


@main.group()
def data() -> None:
    """Prepare public data sets, and look at data before training."""


@data.command()
@click.argument("task", type=click.Choice(["prostate", "fundus"]))
@click.option(
    "--source", type=click.Path(path_type=Path), metavar="DIR", help="The folder with the downloaded data sets."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Where the sites go; default data/TASK.")
@click.option("--list", "only_list", is_flag=True, help="Say what to download from where, as without --source.")
@one_line_errors
def prepare(task: Literal["prostate", "fundus"], source: Path | None, out: Path | None, only_list: bool) -> None:
    """Turn the published prostate or fundus data sets into a folder of sites; the same command goes on where it was."""
    from fedce.data import prepare as preparing
    from fedce.present.tables import prepared_table
    from fedce.present.terminal import Terminal

    if source is None or only_list:
        click.echo(preparing.guide(task))
        return
    place = out or Path("data") / task
    with Terminal(quiet=False) as display:
        summary = preparing.prepare(task, source, place, display.notice)
        display.show(prepared_table(summary))
        for site in summary.sites:
            for line in (*site.left_out, *site.unmatched[:UNMATCHED_SHOWN]):
                display.notice(f"{site.source.site} left out {line}")
            if (more := len(site.unmatched) - UNMATCHED_SHOWN) > 0:
                display.notice(f"{site.source.site} left out {more} more; all are in {place / 'prepared.json'}")
        display.notice(f"written to {place}; train with 'fedce run {place / 'experiment.toml'}'")


@data.command()
@click.argument("target", metavar="DIR|NAME|CONFIG.toml", type=click.Path(path_type=Path))
@click.option("--data", "source", metavar="NAME|DIR", help="As in fedce run, for a CONFIG.toml that leaves it out.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Default runs/inspect-DATA.html.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="As in fedce run.")
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON, and nothing else.")
@one_line_errors
def inspect(target: Path, source: str | None, out: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """Images, sizes, grey values, masks and near-duplicates of each site, and how different the sites are."""
    from fedce.config import load, parse_assignment
    from fedce.present.tables import inspection_table
    from fedce.present.terminal import Terminal

    is_file = target.suffix == ".toml" and not target.is_dir()
    if source is not None and not is_file:
        raise ConfigError(f"--data {source} goes with an experiment file, but {target} is data; leave out one")
    if out is not None and out.is_dir():
        raise ConfigError(f"--out: {out} is a folder; give a file such as {out / 'data.html'}")
    named = {"data.source": source if is_file else str(target)}
    changes = {key: value for key, value in named.items() if value is not None}
    config = load(target if is_file else None, changes | dict(parse_assignment(text) for text in assignments))
    with Terminal(quiet=as_json) as display:
        from fedce.data import load_sites
        from fedce.data.inspection import inspect_sites
        from fedce.data.remarks import summary
        from fedce.present.pages.inspection import source_name, write_inspection

        sites = load_sites(config.data, notify=display.notice)
        found = inspect_sites(sites)
        place = write_inspection(sites, found, out or Path("runs") / f"inspect-{source_name(sites)}.html")
        display.show(inspection_table(found), *summary(found))
        display.notice(f"written to {place}")
    if as_json:
        click.echo(json.dumps({"page": str(place), **found.as_dict()}, indent=2))


__all__: list[Any] = ["main"]
