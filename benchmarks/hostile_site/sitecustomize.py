"""Found by every Python program of an attacker's machine: its fedce answers by rules of its own.

`benchmarks.hostile` puts this folder on the path of the attackers' SuperNodes and NVFlare clients, and of no other's.
FEDCE_HOSTILE says how this one cheats: on the wire, with another lie in every round, or in training.
"""

import importlib.abc
import importlib.util
import os
import sys
from typing import Any

TARGET = "fedce.site.resident"
HOW = os.environ.get("FEDCE_HOSTILE", "")


def lie_on_the_wire(module: Any) -> None:
    """Every answer to a task to train is a forgery."""
    from benchmarks.hostile import LIES

    from fedce.site.wire import TaskForm, kind_of

    honest = module.Resident.answer

    def answer(self: Any, parcel: Any) -> Any:
        true = honest(self, parcel)
        if kind_of(parcel.about) == "hello" or (form := TaskForm.read(parcel.about)).action != "train":
            return true
        first = self.__dict__.setdefault("first", true)
        return [*LIES.values()][form.round_no % len(LIES)](true, self.identity, first)

    module.Resident.answer = answer


def cheat_in_training(module: Any) -> None:
    """The experiment plants nobody; this site's own copy of it does."""
    adopt = module.Resident._adopt

    def adopted(self: Any, config: Any) -> None:
        plant = {self.site: HOW}
        adopt(self, config.model_copy(update={"freerider": config.freerider.model_copy(update={"plant": plant})}))

    module.Resident._adopt = adopted


class Changed(importlib.abc.MetaPathFinder):
    """Changes the module when it is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != TARGET:
            return None
        sys.meta_path.remove(self)
        found: Any = importlib.util.find_spec(name)
        run = found.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            (lie_on_the_wire if HOW == "wire" else cheat_in_training)(module)

        found.loader.exec_module = exec_module
        return found


if HOW:
    sys.meta_path.insert(0, Changed())
