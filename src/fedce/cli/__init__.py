"""The command line. Bad input ends with one clear line and exit code 2."""

import click

from fedce import __version__
from fedce.base.garbage import search_rarely_until_imported
from fedce.cli import data, federation, keys, plan, record, research, run, use
from fedce.cli.examples import show_examples

__all__ = ["main"]

search_rarely_until_imported()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedce")
def main() -> None:
    """Fair federated segmentation: one model across hospitals, and what each contributed to it."""


for command in (
    *(plan.plan, run.run, run.report, run.track, run.watch),
    *(federation.deploy, federation.doctor, federation.new, federation.runs, federation.status),
    *(use.evaluate, use.export, use.predict),
    *(data.data,),
    *(record.allocate, keys.keys, record.ledger, record.publish, keys.withdraw),
    *(research.compare, research.study, research.value),
):
    main.add_command(command)
show_examples(main)
