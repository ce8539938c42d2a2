"""The command line. Bad input ends with one clear line and exit code 2."""

import click

from fedce import __version__
from fedce.cli import data, plan, record, research, run, use

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedce")
def main() -> None:
    """Fair federated segmentation: one model across hospitals, and what each contributed to it."""


for command in (
    *(plan.plan, run.run, run.deploy, run.doctor, run.report, run.track, run.watch),
    *(use.evaluate, use.export, use.predict),
    *(data.data,),
    *(record.allocate, record.keys, record.ledger, record.publish),
    *(research.compare, research.study, research.value),
):
    main.add_command(command)
