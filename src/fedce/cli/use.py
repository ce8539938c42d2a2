"""Commands that use a finished run's model: predict, evaluate and export."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedce.base.errors import ConfigError
from fedce.base.places import evaluation_folder
from fedce.cli.errors import one_line_errors
from fedce.cli.options import (
    PATH,
    command_line,
    echo_json,
    json_option,
    model_options,
    out_option,
    replace_option,
    run_argument,
)

if TYPE_CHECKING:
    from fedce.questions.bundle import Kind
    from fedce.questions.export import Form
    from fedce.questions.loading import Which
    from fedce.questions.predict import Target


MASKS_AS = "Masks of volumes as NIfTI files or, for DICOM series, as DICOM SEG."
READS = "What a bundle reads; default what the run was trained on."


@click.command()
@run_argument
@click.argument("images", metavar="IMAGES...", nargs=-1, required=True, type=PATH)
@out_option("Where the masks go.", required=True)
@click.option("--to", type=click.Choice(["nifti", "seg"]), default="nifti", help=MASKS_AS)
@model_options(in_use=True)
@replace_option("Replace masks that are already there.")
@one_line_errors
def predict(
    run_folder: Path,
    images: tuple[Path, ...],
    out: Path,
    to: "Target",
    which: "Which",
    replace: bool,
) -> None:
    """Segment images, volumes and folders of them with a run's model: a mask and an overlay picture for each."""
    from fedce.questions.predict import predict_files

    if which.adapt:
        click.echo("batch-norm statistics are estimated from these images; no mask is used", err=True)
    for path in predict_files(run_folder, images, out, which, to=to, replace=replace):
        click.echo(path)


@click.command()
@run_argument
@click.argument("folder", metavar="FOLDER", type=PATH)
@out_option("Where table, page and cases go; default runs/evaluate-RUN-FOLDER.")
@click.option(
    "--metrics",
    metavar="A,B,C",
    default="dice,hd95,surface_dice,volume_difference",
    help="What is measured; default dice,hd95,surface_dice,volume_difference.",
)
@model_options(in_use=True)
@click.option("--no-examples", is_flag=True, help="Leave out the example images, so that the page shows no patients.")
@replace_option("Replace an evaluation that is already there.")
@json_option("the evaluation")
@one_line_errors
def evaluate(
    run_folder: Path,
    folder: Path,
    out: Path | None,
    metrics: str,
    which: "Which",
    no_examples: bool,
    replace: bool,
    as_json: bool,
) -> None:
    """Measure a run's model on a labelled FOLDER: of one site or of several, also of a hospital that took no part."""
    from fedce.base.files import read_json
    from fedce.present.evaluation import evaluation_tables, write_evaluation
    from fedce.present.terminal import Terminal
    from fedce.questions import evaluate as evaluating
    from fedce.record.folder import RunFolder

    terminal, run = Terminal(quiet=as_json), RunFolder.open(run_folder)
    names = [name.strip() for name in metrics.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"--metrics: expected names such as dice,hd95, got {metrics!r}")
    place = out or evaluation_folder(run_folder, folder)
    evaluating.check_free(place, replace=replace)
    found, shown = evaluating.evaluate(run, folder, which, metrics=names, notify=terminal.notice)
    evaluating.write(found, place, command_line())
    page = write_evaluation(found, [] if no_examples else shown, place)
    terminal.show(*evaluation_tables(found, terminal.stdout.width))
    for note in found.notes:
        terminal.notice(note)
    terminal.notice(f"written to {page}, with {evaluating.CASES} and {evaluating.JSON} beside it")
    if as_json:
        echo_json({"written_to": str(place), **read_json(place / evaluating.JSON)})


@click.command()
@run_argument
@click.option("--to", "form", type=click.Choice(["bundle", "onnx", "weights"]), required=True, help="What is written.")
@out_option("File, or a bundle's folder; default beside RUN: RUN-bundle, RUN.onnx or RUN.safetensors.", "PATH")
@click.option("--input", "kind", type=click.Choice(["images", "volumes"]), help=READS)
@model_options(in_use=False)
@replace_option("Replace an export that is already there.")
@one_line_errors
def export(
    run_folder: Path,
    form: "Form",
    out: Path | None,
    kind: "Kind | None",
    which: "Which",
    replace: bool,
) -> None:
    """Write a run's model for others: a MONAI bundle, ONNX, or one file of weights, each with its preprocessing."""
    from fedce.present.pages.card import model_card
    from fedce.questions.export import export as write
    from fedce.record.folder import RunFolder

    if kind and form != "bundle":
        raise ConfigError(f"--input is for --to bundle; leave it out with --to {form}")
    run = RunFolder.open(run_folder)
    card = model_card(run, run.results, run.ledger().sites)
    exported = write(run, form, out, which, card, kind=kind, replace=replace)
    for path in exported.files:
        click.echo(path)
    if exported.difference is not None:
        click.echo(f"in onnxruntime no logit differs by more than {exported.difference:.1e} from torch's", err=True)
