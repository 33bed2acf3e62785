"""Decisions of a run as HTML: every alternative with its named terms, predicted, above what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from kvlab.display.drawing import actual_terms_of, alternatives_of
from kvlab.display.html import Html, decision_html, html_table, text
from kvlab.display.inequality import inequalities, inequality_formula
from kvlab.display.look import decision_token
from kvlab.display.quantities import NONE, bytes_text, counted, seconds_text
from kvlab.store.fold import Row

BAR = 90
"""Width in px of the bar of the slowest alternative of an edge."""

TERM_ORDER = ("queue", "link queue", "transfer", "prefill", "resume", "decode", "overhead", "overlap")


def decisions_html(edges: Iterable[Row]) -> Html:
    """One block an edge, in the order of the decisions."""
    rows = list(edges)
    if not rows:
        return Html('<p class="muted">No state was handed on, so nothing had to be decided.</p>')
    return Html(f'<p class="muted">{text(quality(rows))}</p>' + "".join(map(_block, rows)))


def quality(edges: Iterable[Row]) -> str:
    """How well the predictions held: edges that went as planned, and the middle of their relative errors."""
    decided = [row for row in edges if row["chosen"]]
    done = [row for row in decided if row["actual_how"]]
    kept = [row for row in done if row["actual_how"] == row["chosen"]]
    errors = [
        abs(row["actual_seconds"] / row["predicted_seconds"] - 1)
        for row in kept
        if row["predicted_seconds"] and row["actual_seconds"] is not None
    ]
    told = f"{len(decided)} decisions, {len(kept)} of {len(done)} carried out as planned."
    return f"{told} Median error of their predicted seconds: {median(errors):.0%}." if errors else told


def _block(row: Row) -> str:
    alternatives, actual = alternatives_of(row), actual_terms_of(row)
    terms = _terms([*(a.get("terms") or {} for a in alternatives), actual])
    slowest = max((a.get("seconds") or 0.0 for a in alternatives), default=0.0)
    slowest = max(slowest, row["actual_seconds"] or 0.0)
    cells = [_alternative(row, a, terms, slowest) for a in sorted(alternatives, key=_rank(row))]
    if row["actual_how"]:
        cells.append(_actual(row, actual, terms, slowest))
    headers: list[object] = ["alternative", "on", "time to first token", "", *terms, "bytes", ""]
    numeric = {2, *range(4, 5 + len(terms))}
    did = row["actual_how"] or row["chosen"]
    changed = did != row["chosen"]
    head = (
        f'<span class="edge">{text(row["source"])} → {text(row["target"])}</span> {decision_html(did)} '
        f'<span class="muted">{counted(row["n_tokens"], "token")}</span>'
    )
    why = text(row["reason"] or "")
    if changed:
        because = text(row["because"] or "no reason was given")
        why = Html(f'{why} <span class="warning">Planned {text(row["chosen"])}, did {text(did)}: {because}</span>')
    told = inequalities(row)
    formulas = "".join(
        f'<p class="muted formula">{text(line)}</p>' for line in ([inequality_formula(row), *told] if told else ())
    )
    return (
        f'<details open data-kv-decision="{text(row["edge"])}"><summary>{head}</summary>'
        f'<p class="muted why">{why}</p>{formulas}<div class="wide">{html_table(cells, headers, numeric)}</div></details>'
    )


def _alternative(row: Row, told: dict[str, Any], terms: list[str], slowest: float) -> list[object]:
    how, excluded = told.get("how"), told.get("excluded")
    chosen = how == row["chosen"] and told.get("worker") == row["worker"] and not excluded
    seconds = None if excluded else told.get("seconds")
    values = {} if excluded else told.get("terms") or {}
    return [
        decision_html(how, chosen=chosen),
        told.get("worker"),
        seconds_text(seconds),
        _bar(how, seconds, slowest),
        *(seconds_text(values.get(term)) for term in terms),
        NONE if excluded else bytes_text(told.get("nbytes") or 0),
        Html(f'<span class="muted">not possible: {text(excluded)}</span>') if excluded else _tag("predicted"),
    ]


def _actual(row: Row, actual: dict[str, float], terms: list[str], slowest: float) -> list[object]:
    off = ""
    if row["actual_how"] == row["chosen"] and row["predicted_seconds"] and row["actual_seconds"] is not None:
        off = f" {row['actual_seconds'] / row['predicted_seconds'] - 1:+.0%}".replace("-", "−")
    return [
        Html(f'<span class="did">did {decision_html(row["actual_how"])}</span>'),
        row["actual_worker"],
        Html(f"<b>{seconds_text(row['actual_seconds'])}</b>"),
        _bar(row["actual_how"], row["actual_seconds"], slowest),
        *(seconds_text(actual.get(term)) for term in terms),
        bytes_text(row["actual_nbytes"]),
        Html(f"{_tag('measured')}{off}"),
    ]


def _bar(how: str | None, seconds: float | None, slowest: float) -> Html:
    if seconds is None or not slowest:
        return Html("")
    width = max(1.0, BAR * seconds / slowest)
    fill = f"var(--kv-{decision_token(how)})"
    return Html(
        f'<svg width="{BAR}" height="8" aria-hidden="true"><rect width="{width:.1f}" height="8" rx="2" '
        f'style="fill:{fill}"/></svg>'
    )


def _tag(word: str) -> Html:
    return Html(f'<span class="tag">{word}</span>')


def _terms(told: Iterable[dict[str, Any]]) -> list[str]:
    found = dict.fromkeys(name for terms in told for name in terms)
    return sorted(found, key=lambda name: (TERM_ORDER.index(name) if name in TERM_ORDER else len(TERM_ORDER), name))


def _rank(row: Row) -> Any:
    """Chosen first, then by time, those that were not possible last."""

    def rank(told: dict[str, Any]) -> tuple[bool, bool, float]:
        chosen = told.get("how") == row["chosen"] and told.get("worker") == row["worker"]
        return bool(told.get("excluded")), not chosen, told.get("seconds") or 0.0

    return rank
