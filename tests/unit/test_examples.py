"""The examples in the docstrings of the types that a newcomer meets first."""

import doctest
from importlib import import_module

import pytest

HOMES = (
    "base.config",
    "core.algorithm",
    "core.codec",
    "core.credit",
    "core.messages",
    "core.params",
    "core.site",
    "guard.guarded",
    "record.entries",
    "record.folder",
    "record.ledger",
)
"""Modules of the package with at least one example each."""


@pytest.mark.parametrize("home", HOMES)
def test_the_examples_in_docstrings(home: str):
    found = doctest.testmod(import_module(f"fedce.{home}"))
    assert found.attempted > 0
    assert found.failed == 0
