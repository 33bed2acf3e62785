"""Whatever a person or a model wrote, in every name and text of a run: no page makes elements of it."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvlab.display.report import write_report
from kvlab.store.runs import new_run_folder, open_run


@pytest.fixture
def evil_run(tmp_path: Path, review: ModuleType) -> Any:
    folder = new_run_folder("review", root=tmp_path)
    folder.log.append(review.harmful_events())
    folder.complete()
    return open_run(folder.path)


class Elements(HTMLParser):
    """What a browser would make of a page: its elements, and those attributes that run code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


FORMS: dict[str, Callable[[Any, Path], str]] = {
    "page": lambda run, out: write_report(out / "r.html", [run]).read_text(encoding="utf-8"),
    "markdown": lambda run, out: write_report(out / "r.md", [run]).read_text(encoding="utf-8"),
    "cell": lambda run, _: run._repr_html_(),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_element_is_made_of_it(evil_run: Any, tmp_path: Path, form: str) -> None:
    page = FORMS[form](evil_run, tmp_path)
    assert "window.hit" in page, "it is shown, as text"
    found = Elements(page)
    assert "img" not in found.tags
    assert "script" not in found.tags
    assert found.handlers == []


def test_a_title_and_a_graph_are_texts_too(evil_run: Any, tmp_path: Path, review: ModuleType) -> None:
    from dataclasses import replace

    graph = replace(review.review_graph(), name=review.EVIL, warnings=(review.EVIL,))
    for page in (
        write_report(tmp_path / "r.html", [evil_run], title=review.EVIL).read_text(encoding="utf-8"),
        graph._repr_html_(),
    ):
        assert not {"img", "script"} & set(Elements(page).tags)
        assert Elements(page).handlers == []
