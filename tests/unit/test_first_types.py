"""Types and functions that a newcomer meets first, in data, learning, engines, questions, studies and pages."""

import doctest
from importlib import import_module

import pytest

import fedce
from fedce.data.formats import Format
from fedce.data.sites import SiteData, Sites, load_sites
from fedce.engines.courier import Courier
from fedce.engines.local import LocalEngine
from fedce.engines.starting import run
from fedce.learning.metrics import Metric
from fedce.present.columns import Column
from fedce.questions.jobs import Store
from fedce.studies.base import Study

MET_FIRST = (Sites, SiteData, load_sites, Format, Metric, Courier, LocalEngine, run, Store, Study, Column)


@pytest.mark.parametrize("kind", MET_FIRST, ids=lambda kind: kind.__name__)
def test_it_has_an_example_that_holds(kind):
    found = doctest.DocTestFinder(recurse=False).find(kind, globs=vars(import_module(kind.__module__)).copy())
    results = [doctest.DocTestRunner().run(example) for example in found]
    assert sum(result.attempted for result in results) > 1
    assert not any(result.failed for result in results)


def test_the_package_gives_the_functions_of_the_examples():
    assert fedce.load_sites is load_sites
    assert fedce.run.__doc__ == run.__doc__
