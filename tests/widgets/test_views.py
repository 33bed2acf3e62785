"""kvlab finds its views by an entry point, and says what to install where there are none."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import pytest

from kvlab.display.views import GROUP, view
from kvlab.errors import InvalidInput, MissingExtra

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``registered({name: "module:function"})`` makes a package with these views known, and none but it."""

    def register(entries: dict[str, str]) -> None:
        folder = tmp_path / "views_for_a_test-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: views-for-a-test\nVersion: 1.0\n")
        lines = "\n".join(f"{name} = {value}" for name, value in entries.items())
        (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}\n")
        found = importlib.metadata.distributions(path=[str(tmp_path)])
        points = [point for one in found for point in one.entry_points]

        def entry_points(**wanted: str) -> importlib.metadata.EntryPoints:
            return importlib.metadata.EntryPoints(points).select(**wanted)

        monkeypatch.setattr("kvlab.display.views.entry_points", entry_points)

    return register


def test_the_projects_own_entries_load(registered: Any, small: Any, tmp_path: Path) -> None:
    import tomllib

    entries = tomllib.loads(PROJECT.read_text())["project"]["entry-points"][GROUP]
    assert set(entries) == {"inspector", "page", "export", "bench"}
    registered(entries)
    written = view("export", small, tmp_path / "run.html")
    assert written.stat().st_size > 1_000_000
    assert "kvlab inspector" in written.read_text()


def test_without_views_the_extra_is_named(registered: Any) -> None:
    registered({})
    with pytest.raises(MissingExtra, match="no view 'inspector'") as caught:
        view("inspector", None)
    assert "kvlab[lab]" in caught.value.hint


def test_a_view_whose_package_is_missing_names_it(registered: Any, monkeypatch: pytest.MonkeyPatch, small: Any) -> None:
    registered({"export": "kvlab_widgets:write_page"})
    for name in [name for name in sys.modules if name.startswith("kvlab_widgets.export")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "bokeh.document", None)
    with pytest.raises(MissingExtra, match=r"export needs bokeh") as caught:
        view("export", small, "nowhere.html")
    assert "kvlab[lab]" in caught.value.hint


def test_two_views_of_one_name_are_refused(registered: Any) -> None:
    registered({"inspector": "kvlab_widgets:inspect"})
    first = importlib.metadata.EntryPoint("inspector", "other:thing", GROUP)
    import kvlab.display.views as views

    known = views.entry_points(group=GROUP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "entry_points", lambda **_: importlib.metadata.EntryPoints([*known, first]))
        with pytest.raises(InvalidInput, match="several packages"):
            view("inspector", None)
