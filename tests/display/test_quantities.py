import pytest

from kvlab.display.quantities import bytes_text, count_text, counted, ratio, ratio_text, seconds_text


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "–"),
        (0.0, "0 ms"),
        (0.0004, "0.4 ms"),
        (0.008, "8.0 ms"),
        (0.0394, "39 ms"),
        (0.0999, "100 ms"),
        (0.1, "0.10 s"),
        (1.234, "1.23 s"),
        (12.34, "12.3 s"),
        (-0.02, "-20 ms"),
    ],
)
def test_seconds(seconds: float | None, expected: str) -> None:
    assert seconds_text(seconds) == expected


@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [
        (None, "–"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (46_080, "45.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (50_503_680, "48.2 MiB"),
        (1 << 30, "1.00 GiB"),
        (5000 << 30, "5\u202f000.00 GiB"),
    ],
)
def test_bytes(nbytes: int | None, expected: str) -> None:
    assert bytes_text(nbytes) == expected


def test_counts_have_spaced_thousands() -> None:
    assert [count_text(n) for n in (None, 7, 1024, 1_234_567)] == ["–", "7", "1\u202f024", "1\u202f234\u202f567"]


def test_ratios_of_nothing_are_unknown() -> None:
    assert [ratio(a, b) for a, b in ((1.0, 2.0), (None, 2.0), (1.0, None), (1.0, 0.0))] == [0.5, None, None, None]
    assert [ratio_text(x) for x in (None, 0.5, 2.345, 12.34, 1234.5)] == [
        "–",
        "0.50×",
        "2.35×",
        "12.3×",
        "1\u202f234.5×",
    ]


def test_one_of_a_thing_is_not_several() -> None:
    assert [counted(n, "token") for n in (0, 1, 2, 1024, None)] == [
        "0 tokens",
        "1 token",
        "2 tokens",
        "1\u202f024 tokens",
        "– tokens",
    ]
    assert counted(2, "token of state", "tokens of state") == "2 tokens of state"
