"""The examples in docstrings are run, and the types that a newcomer meets first have one."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import fedce
from fedce.base.config import Config
from fedce.core.algorithm import Algorithm, State, Traits
from fedce.core.credit import Credit
from fedce.core.messages import Evaluation, Member, Reply, Task
from fedce.core.params import Layout, Params
from fedce.core.site import Memory, Site
from fedce.data.formats import Format
from fedce.data.site import SiteData
from fedce.engines.courier import Courier
from fedce.engines.local import LocalEngine
from fedce.federation.asking import Engine
from fedce.federation.session import Observer, Result
from fedce.guard import Guarded
from fedce.learning.metrics import Metric
from fedce.present.columns import Column
from fedce.questions.jobs import Store
from fedce.record.folder import RunFolder
from fedce.record.ledger import Ledger
from fedce.studies.base import Study

PACKAGE = Path(fedce.__file__).parent
WITH_EXAMPLES = [
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for file in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in file.read_text()
]
MET_FIRST = (
    *(Algorithm, Traits, State, Task, Reply, Member, Evaluation, Credit, Params, Layout, Guarded, Memory, Site),
    *(Engine, RunFolder, Ledger, Result, Observer, Config),
    *(SiteData, Format, Metric, Courier, LocalEngine, Store, Study, Column),
)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_in_docstrings(module: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Examples write to runs/, as a user's own calls do.
    found = doctest.testmod(import_module(module), optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("name", sorted(set(fedce.__all__) - {"__version__"}))
def test_every_public_name_has_an_example(name: str):
    assert ">>> " in (getattr(fedce, name).__doc__ or "")


@pytest.mark.parametrize("kind", MET_FIRST, ids=lambda kind: kind.__name__)
def test_a_type_that_a_newcomer_meets_first_has_an_example(kind: type):
    assert ">>> " in (kind.__doc__ or "")
