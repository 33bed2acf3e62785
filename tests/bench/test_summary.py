from __future__ import annotations

import json

import pytest

from kvlab.bench.summary import FILE_NAME, SCHEMA, environment, measured, ratio_of_medians, summary, write_summary


def test_a_ratio_is_of_medians_with_the_range_of_its_rounds():
    ratio = ratio_of_medians([2.0, 9.0, 4.0], [1.0, 2.0, 4.0])
    assert (ratio.value, ratio.n, ratio.lo, ratio.hi) == (2.0, 3, 1.0, 4.5)
    assert (ratio.unit, ratio.kind) == ("×", "measured")


def test_rounds_must_be_paired():
    with pytest.raises(ValueError, match="zip"):
        ratio_of_medians([1.0, 2.0], [1.0])


def test_the_file_holds_every_figure_with_unit_and_kind(tmp_path):
    record = summary("engine", {"speed": measured(3.5, "×")}, environment(threads=2))
    path = write_summary(tmp_path / "new", record)
    read = json.loads(path.read_text(encoding="utf-8"))
    assert path.name == FILE_NAME
    assert read == record
    assert read["schema"] == SCHEMA
    assert read["revision"]
    assert read["metrics"]["speed"] == {"value": 3.5, "unit": "×", "kind": "measured", "n": 1, "lo": 3.5, "hi": 3.5}
    assert read["environment"]["threads"] == 2
    assert {"processor", "cores", "versions"} <= set(read["environment"])
    assert [file.name for file in path.parent.iterdir()] == [FILE_NAME]


def test_writing_again_replaces_the_file(tmp_path):
    write_summary(tmp_path, summary("engine", {"a": measured(1.0, "s")}, {}))
    path = write_summary(tmp_path, summary("engine", {"b": measured(2.0, "s")}, {}))
    assert list(json.loads(path.read_text(encoding="utf-8"))["metrics"]) == ["b"]
