"""Commands with many trainings: compare methods, value sites, and make the paper's tables and figures."""

from pathlib import Path

import click

from fedce.base.errors import ConfigError
from fedce.base.places import comparison_folder
from fedce.cli.errors import one_line_errors
from fedce.cli.options import (
    PATH,
    STARTING,
    Experiment,
    command_line,
    echo_json,
    experiment_options,
    json_option,
    out_option,
    rounds_option,
    scale_option,
    store_option,
    trainings_option,
)

STUDY_SCALES = {"quick": (20, "0", 12), "full": (60, "0,1,2", 48)}
"""Rounds and seeds of a study, and sites of the largest federation in the scaling study."""
SCALES_OF_DATA = ("tiny", "demo", "paper")


def size_of_study(scale: str) -> tuple[int, str, int]:
    """Rounds, seeds and sites of a study's scale; scales of data have other names."""
    if scale in STUDY_SCALES:
        return STUDY_SCALES[scale]
    meant = "'paper' is called 'full' for a study" if scale == "paper" else f"expected {' or '.join(STUDY_SCALES)}"
    as_data = f"; for the size of the data, --set data.scale={scale}" if scale in SCALES_OF_DATA else ""
    raise ConfigError(f"--scale: {meant}, got {scale!r}{as_data}")


def numbers_of(seeds: str) -> list[int]:
    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise ConfigError(f"--seeds: expected whole numbers from 0 such as 0,1,2, got {seeds!r}")
    if len(set(numbers)) < len(numbers):
        raise ConfigError(f"--seeds: {seeds} names a seed twice, and the same training says nothing new")
    return numbers


@click.command()
@click.argument("target", metavar="RUN|CONFIG", type=PATH)
@click.option(
    "--method", default="loo", metavar="METHOD", help="loo (leave-one-out, default), shapley, reconstruction."
)
@click.option(
    "--candidate",
    metavar="FOLDER",
    type=PATH,
    help="Instead: what the federation would gain by the hospital whose labelled images are in FOLDER.",
)
@click.option(
    "--rounds", default=10, metavar="N", help="With --candidate: rounds from the run's last model; default 10."
)
@click.option("--seeds", default="0,1,2", metavar="0,1,2", help="With --candidate: training seeds; default 0,1,2.")
@store_option
@out_option("Where the values go; default RUN/value-METHOD.json.", metavar=None)
@trainings_option
@click.option("--yes", is_flag=True, help="Do not ask before a long job.")
@json_option("the values")
@one_line_errors
def value(
    target: Path,
    method: str,
    candidate: Path | None,
    rounds: int,
    seeds: str,
    store: Path,
    out: Path | None,
    workers: int,
    yes: bool,
    as_json: bool,
) -> None:
    """Measure each site's value by training again, and how well the contributions agree with it."""
    if candidate is not None:
        _candidate(target, candidate, rounds, numbers_of(seeds), store, out, as_json)
        return
    from fedce.present.progress import JobsDisplay
    from fedce.present.tables import value_table

    with JobsDisplay(quiet=as_json) as display:
        display.notice(STARTING)
        from fedce.api.asking import keep_value, trainings
        from fedce.questions import value as valuing
        from fedce.questions.jobs import Store

        valuing.check_method(method)
        config = valuing.config_of(target)
        kept = Store(store, display.notice)
        display.estimate(kept, trainings(config, method, kept), workers, ask=not (yes or as_json))
        found = valuing.value(config, method, kept, workers, display.progress)
        place, page = keep_value(found, target, out)
        display.show(value_table(found))
        display.notice(f"written to {place}")
        if page is not None:
            display.notice(f"{page} shows the values too")
    if as_json:
        echo_json(found.as_dict())


def _candidate(
    target: Path, folder: Path, rounds: int, seeds: list[int], store: Path, out: Path | None, as_json: bool
) -> None:
    from fedce.present.progress import JobsDisplay

    if rounds < 1:
        raise ConfigError(f"--rounds: expected at least 1, got {rounds}")
    with JobsDisplay(quiet=as_json) as display:
        display.notice(STARTING)
        from fedce.base.files import write_sealed
        from fedce.present.tables import candidate_table
        from fedce.questions.candidate import candidacy
        from fedce.record.folder import RunFolder

        run = RunFolder.open(target)
        found = candidacy(run, folder, rounds, seeds, store, display.notice)
        place = out or target / f"candidate-{folder.resolve().name}.json"
        write_sealed(place, found.as_dict())
        display.show(*candidate_table(found), *filter(None, (found.sentence, found.basis, found.at_candidate)))
        display.notice(f"written to {place}")
    if as_json:
        echo_json(found.as_dict())


@click.command()
@experiment_options(scale=scale_option(), rounds=rounds_option())
@click.option("--algorithms", required=True, metavar="A,B,C", help="Names as in fedce run --algorithm.")
@click.option("--seeds", default="0,1,2", metavar="0,1,2", help="Training seeds; default 0,1,2.")
@click.option("--truth", metavar="METHOD", help="Compare contributions with loo, shapley or reconstruction values.")
@click.option("--truth-by", default="fedce", metavar="NAME", help="The algorithm that is trained again for the truth.")
@store_option
@out_option("Where the tables go; default runs/compare-DATA.")
@trainings_option
@json_option("the comparison")
@one_line_errors
def compare(
    experiment: Experiment,
    algorithms: str,
    seeds: str,
    truth: str | None,
    truth_by: str,
    store: Path,
    out: Path | None,
    workers: int,
    as_json: bool,
) -> None:
    """Compare several algorithms over several seeds in one table; no training is repeated."""
    from fedce.present.progress import JobsDisplay
    from fedce.present.tables import compare_tables, truth_table

    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    numbers = numbers_of(seeds)
    if not names:
        raise ConfigError(f"--algorithms: expected names such as fedavg,fedce, got {algorithms!r}")
    with JobsDisplay(quiet=as_json) as display:
        display.notice(STARTING)
        from fedce.questions.comparison import Compared
        from fedce.questions.jobs import Store

        asked = Compared(experiment.planned(display.notice), tuple(names), tuple(numbers), truth, truth_by)
        kept = Store(store, display.notice)
        display.estimate(kept, asked.trainings(kept), workers, ask=False)
        found = asked.answer(kept, workers, display.progress)
        folder = found.save(out or comparison_folder(asked.config), command_line())
        tables = compare_tables(found.rows, display.stdout.width)
        display.show(*tables, *([truth_table(found.truth)] if found.truth else []))
        display.notice(f"written to {folder}")
    if as_json:
        click.echo((folder / "compare.json").read_text("utf-8"))


@click.command()
@click.argument("name", metavar="STUDY")
@experiment_options(rounds=rounds_option("Communication rounds; default by the scale."))
@click.option(
    "--scale",
    metavar="quick|full",
    default="quick",
    help="quick: 20 rounds, one seed; full: 60 rounds, three seeds.",
)
@click.option("--seeds", metavar="0,1,2", help="Training seeds; default by the scale.")
@click.option("--methods", metavar="A,B,C", help="The algorithms to compare; default: the paper's.")
@store_option
@click.option(
    "--results",
    metavar="FILE",
    type=PATH,
    help="Also keep all trainings' results in FILE, and do not repeat those that it holds (several machines).",
)
@out_option("Default runs/study-NAME-DATA.")
@trainings_option
@json_option("the study")
@one_line_errors
def study(
    name: str,
    experiment: Experiment,
    scale: str,
    seeds: str | None,
    methods: str | None,
    store: Path,
    results: Path | None,
    out: Path | None,
    workers: int,
    as_json: bool,
) -> None:
    """Make tables and figures of the paper: performance, fairness, contribution and others, which docs/studies.md
    lists. Give several with commas, or all; a study of your own is package.module:NAME."""
    from fedce.present.progress import JobsDisplay
    from fedce.present.tables import study_tables

    n_rounds, default_seeds, largest = size_of_study(scale)
    by_scale = {} if experiment.file or "recipe" in experiment.changes else {"rounds": n_rounds}
    with JobsDisplay(quiet=as_json) as display:
        display.notice(STARTING)
        config = experiment.planned(display.notice) if experiment.is_planned else experiment.config(**by_scale)
        from fedce import studies
        from fedce.base.files import read_sealed
        from fedce.present.pages.study import write_study_report
        from fedce.questions.jobs import Store
        from fedce.questions.results_file import ResultsFile
        from fedce.studies import writing

        names = studies.wanted(name)
        kept = Store(store, display.notice, ResultsFile(results) if results else None)
        numbers = numbers_of(seeds or default_seeds)
        compared = tuple(methods.split(",")) if methods else studies.METHODS
        context = studies.Context(config, numbers, kept, compared, largest)
        if results:
            kept.read_in_full(studies.in_full(names, context))
        display.estimate(kept, studies.needed(names, context), workers, ask=False)
        outcomes = studies.conduct(names, context, workers, display.progress)
        folder = out or Path("runs") / f"study-{name.replace(':', '.')}-{Path(config.data.source).name}"
        writing.write(folder, outcomes, studies.about(names, context, command_line()))
        # Made from the files, so that 'fedce report' gives the same page.
        page = write_study_report(folder)
        display.show(*study_tables(outcomes, display.stdout.width))
        display.notice(f"written to {page}")
    if as_json:
        echo_json(read_sealed(folder / "study.json"), ensure_ascii=False)
