"""The prefix tree against a plain dict of paths."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvlab.state.prefixes import PrefixTree
from kvlab.state.tokens import BYTES_PER_ID, common_prefix, n_ids, pack_ids

PATHS = st.lists(st.integers(0, 2), max_size=7).map(pack_ids)
WIDE = st.lists(st.sampled_from([0, 1, 256, 2**24, -1]), max_size=6).map(pack_ids)
NAMES = st.sampled_from("abc")


class PlainDict:
    """The same by looking at every stored path."""

    def __init__(self):
        self.paths = {}

    def add(self, path, name):
        names = self.paths.setdefault(path, [])
        if name not in names:
            names.append(name)

    def remove(self, path, name):
        if name in self.paths.get(path, []):
            self.paths[path].remove(name)
            if not self.paths[path]:
                del self.paths[path]

    def longest(self, query):
        prefixes = [path for path in self.paths if query.startswith(path)]
        if not prefixes:
            return 0, ()
        best = max(prefixes, key=len)
        return n_ids(best), tuple(self.paths[best])

    def overlap(self, query):
        return max((common_prefix(path, query) for path in self.paths), default=0)


class TreeAgainstDict(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.tree, self.plain, self.seen = PrefixTree(), PlainDict(), [b""]

    @rule(path=PATHS | WIDE, name=NAMES)
    def add(self, path, name):
        self.tree.add(path, name)
        self.plain.add(path, name)
        self.seen.append(path)

    @rule(path=PATHS, name=NAMES)
    def remove_anything(self, path, name):
        self.tree.remove(path, name)
        self.plain.remove(path, name)

    @rule(data=st.data())
    def remove_something_stored(self, data):
        if self.plain.paths:
            path = data.draw(st.sampled_from(sorted(self.plain.paths)))
            name = data.draw(st.sampled_from(self.plain.paths[path]))
            self.tree.remove(path, name)
            self.plain.remove(path, name)

    @rule(data=st.data(), more=PATHS)
    def ask(self, data, more):
        query = data.draw(st.sampled_from(self.seen)) + more
        assert self.tree.longest(query) == self.plain.longest(query)
        assert self.tree.overlap(query) == self.plain.overlap(query)

    @invariant()
    def every_stored_path_is_found(self):
        for path, names in self.plain.paths.items():
            assert self.tree.longest(path) == (n_ids(path), tuple(names))
            assert self.tree.overlap(path) == n_ids(path)

    @invariant()
    def no_dead_branch_is_kept(self):
        def check(node, depth):
            assert node.values or node.children or depth == 0
            for head, child in node.children.items():
                assert len(child.edge) >= BYTES_PER_ID
                assert child.edge[:BYTES_PER_ID] == head
                check(child, depth + 1)

        check(self.tree._root, 0)


TreeAgainstDict.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestTreeAgainstDict = TreeAgainstDict.TestCase


@given(st.dictionaries(PATHS, NAMES, max_size=8))
def test_what_is_added_and_removed_leaves_nothing(stored):
    tree = PrefixTree()
    for path, name in stored.items():
        tree.add(path, name)
    for path, name in stored.items():
        tree.remove(path, name)
    assert not tree._root.children
    assert not tree._root.values


@given(st.permutations([pack_ids(ids) for ids in ([], [1], [1, 2], [1, 2, 3], [1, 3], [2])]), PATHS)
def test_the_order_of_adding_does_not_matter(paths, query):
    tree, sorted_tree = PrefixTree(), PrefixTree()
    for path in paths:
        tree.add(path, "a")
    for path in sorted(paths):
        sorted_tree.add(path, "a")
    assert tree.longest(query) == sorted_tree.longest(query)
    assert tree.overlap(query) == sorted_tree.overlap(query)


def test_a_very_long_path_is_no_matter():
    tree = PrefixTree()
    path = pack_ids(range(100_000))
    tree.add(path, "a")
    tree.add(path[:-4], "b")
    tree.add(path[: 4 * 10], "c")
    assert tree.longest(path + pack_ids([5])) == (100_000, ("a",))
    assert tree.longest(path[:-4]) == (99_999, ("b",))
    assert tree.longest(path[: 4 * 50]) == (10, ("c",))
