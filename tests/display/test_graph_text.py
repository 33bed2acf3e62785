from types import ModuleType

from kvlab.compiler.graph import Graph, StateEdge
from kvlab.display.graph_text import graph_text

EXPECTED = """\
review: 6 operators, 5 state edges, 3 data edges
● context:paper (+1 024)  ▲ 2
  ├┄1 024┄ ◆ planner (+24, ≤ 48 new)  ▲ 3
  │     ├┄1 096┄ ◆ reviewer-1 (+24, ≤ 48 new)  ∥
  │     ├┄1 096┄ ◆ reviewer-2 (+24, ≤ 48 new)  ∥
  │     └┄1 096┄ ◆ reviewer-3 (+24, ≤ 48 new)  ∥
  └┄1 024┄ ◆ editor (+24, ≤ 48 new)  ← reviewer-1, reviewer-2, reviewer-3
⚠ reviewer-3 reads no text that reviewer-1 does not read too"""


def test_the_review_graph(review: ModuleType) -> None:
    assert graph_text(review.review_graph()).replace("\u202f", " ") == EXPECTED
    assert str(review.review_graph()) == graph_text(review.review_graph())


def test_an_edge_that_cannot_be_used_says_why(review: ModuleType) -> None:
    graph = review.review_graph()
    edges = (StateEdge("context:paper", "planner", 1024, "another model"), *graph.state_edges[1:])
    changed = Graph(graph.name, graph.nodes, graph.data_edges, edges)
    assert "planner (+24, ≤ 48 new)  ▲ 3  recomputed: another model" in graph_text(changed)


def test_a_graph_of_nothing() -> None:
    assert graph_text(Graph("empty", (), (), ())) == "empty: 0 operators, 0 state edges, 0 data edges"
