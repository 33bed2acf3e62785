"""Importing kvlab starts nothing and loads nothing heavy; its names are there all the same."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest

import kvlab
from kvlab import errors

HEAVY = {
    "torch",
    "transformers",
    "distributed",
    "dask",
    "panel",
    "bokeh",
    "pyarrow",
    "numpy",
    "rich",
    "huggingface_hub",
}


def loaded_after(statement: str) -> set[str]:
    """Top-level modules in a new interpreter after ``statement``, and the threads it started besides the first."""
    program = (
        f"import sys, threading, json\n{statement}\n"
        "print(json.dumps([sorted({name.partition('.')[0] for name in sys.modules}), threading.active_count()]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules, n_threads = json.loads(done.stdout)
    assert n_threads == 1
    return set(modules)


@pytest.mark.parametrize(
    "statement",
    [
        "import kvlab",
        "import kvlab.cli",
        "import kvlab; dir(kvlab)",
        "import kvlab; kvlab.sample_text()",
        "import kvlab_widgets",
    ],
)
def test_nothing_heavy_is_loaded(statement: str) -> None:
    assert not HEAVY & loaded_after(statement)


def test_that_test_can_fail() -> None:
    assert "numpy" in loaded_after("import kvlab, numpy")


def test_a_workflow_needs_no_torch_and_no_cluster() -> None:
    loaded = loaded_after("import kvlab; kvlab.Workflow('review').context('paper', 'text')")
    assert not {"torch", "transformers", "distributed", "panel", "bokeh"} & loaded


@pytest.mark.parametrize("name", kvlab.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(kvlab, name) is getattr(kvlab, name)
    assert name in dir(kvlab)


def test_every_error_is_exported() -> None:
    named = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert named <= set(kvlab.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Labb"):
        _ = kvlab.Labb


def test_errors_pickle_with_hint_and_values() -> None:
    error = kvlab.NoRoom("full", hint="free some", need=3, have=1)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.data) == (kvlab.NoRoom, "full\n  Try: free some", {"need": 3, "have": 1})
