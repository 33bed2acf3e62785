"""Deciding the actions of one run: which road each of its state edges goes, what a person wants instead, and what is booked.

Nothing is launched here. What is decided is booked in the same step, so that the next decision sees it; whoever launches
it releases the booking when it is over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kvlab.cost.decide import Decision, Policy, decide
from kvlab.cost.policies import Forced
from kvlab.cost.siblings import Sibling
from kvlab.cost.world import Edge
from kvlab.engine.protocol import Branch
from kvlab.errors import ClusterError
from kvlab.runtime.beside import Speaker
from kvlab.runtime.operations import file_in
from kvlab.runtime.planning import path_of
from kvlab.runtime.prefetch import Prefetched, decide_prefetched, prefetch
from kvlab.runtime.units import Unit, edge_id
from kvlab.state.records import StateRecord
from kvlab.state.tokens import n_ids


class Decider:
    """Decides the units of one run.

    Parameters
    ----------
    speakers
        The lab's models by name.
    prefix
        What names of the run's actions begin with.
    workers
        Where the run may go; None for everywhere.
    policy
        What edges go by.
    overrides
        What a person wants for single edges, by their ids.
    """

    def __init__(
        self,
        speakers: Mapping[str, Speaker],
        prefix: str,
        workers: frozenset[str] | None,
        policy: Policy,
        overrides: Mapping[str, Forced],
    ) -> None:
        self._speakers, self._prefix, self._workers = speakers, prefix, workers
        self._policy, self._overrides = policy, overrides

    def override(self, edges: Collection[str], choice: Forced) -> None:
        """From now on these edges go as a person wants it; those already decided are not changed. Thread-safe."""
        self._overrides = {**self._overrides, **dict.fromkeys(edges, choice)}

    def name(self, unit: Unit) -> str:
        """The id of a unit's action: its first node's, and how often it was tried before."""
        tries = f"#{unit.tries}" if unit.tries else ""
        return f"{self._prefix}{unit.nodes[0].id}{tries}"

    def preview(self, unit: Unit, parent: StateRecord) -> Decision | None:
        """How the edge of a unit would be decided now; None where no worker is up. Books nothing. Thread-safe."""
        (policy, _), *_ = self._by_policy(unit)
        try:
            return decide(self._edge_ahead(unit, parent), self._at(unit).planner.view(self._workers), policy)
        except (ClusterError, ValueError):
            return None

    def decide(self, unit: Unit, branches: Sequence[Branch], parent: StateRecord | None) -> list[Unit]:
        """Decide a unit whose tokens are known, and book it.

        Returns the unit itself, or units in its place: siblings that fare better in groups, or of which a person wants
        some to go another road.

        Raises
        ------
        ClusterError
            If no worker is up.
        """
        planner, edge = self._at(unit).planner, self._edge(unit, parent, sum(n_ids(branch.ids) for branch in branches))
        if unit.tries > 1 or (unit.tries and not file_in(unit.trouble)):
            decision = planner.plan(edge, unit.action, only=self._workers, policy=Forced("recompute"))
            unit.decision = replace(decision, reason="what was planned failed: recompute")
            return [unit]
        sent = unit.prefetched
        if sent is not None and self._at(unit).core.address_of(sent.worker):
            unit.decision = planner.book(unit.action, lambda view: decide_prefetched(edge, view, sent), self._workers)
            return [unit]
        siblings = [Sibling(n_ids(branch.ids), branch.sampling.max_new_tokens) for branch in branches]
        names = [self.name(replace(unit, nodes=(node,))) for node in unit.nodes]
        parts: list[Unit] = []
        for policy, members in self._by_policy(unit):
            groups = planner.plan_siblings(
                edge,
                [siblings[index] for index in members],
                [names[index] for index in members],
                only=self._workers,
                policy=policy,
            )
            for group in groups:
                chosen = [members[index] for index in group.members]
                nodes = tuple(unit.nodes[index] for index in chosen)
                parts.append(replace(unit, nodes=nodes, action=names[chosen[0]], decision=group.decision))
        if len(parts) > 1:
            return [replace(part, roads_without_room=[], prefetched=None) for part in parts]
        unit.action, unit.decision = parts[0].action, parts[0].decision
        return [unit]

    def forget(self, unit: Unit) -> None:
        """What was decided of a unit that has not begun counts no more."""
        if unit.decision is not None:
            self._at(unit).planner.release(unit.action)
            unit.decision = None

    def by_another_road(self, unit: Unit) -> Decision | None:
        """The decision of a unit, booked, without those of its roads for which there was no room; None if none is left."""
        decision = unit.decision
        if decision is None:
            return None
        unit.roads_without_room.append(decision.chosen)
        ((policy, _),) = self._by_policy(unit)
        found = [road for road in decision.alternatives if road.excluded is None]
        open_roads = policy.allowed(decision.edge, sorted(found, key=lambda road: road.seconds))
        left = [road for road in open_roads if road not in unit.roads_without_room]
        if not left:
            return None
        chosen = decision.chosen
        reason = f"there is no room to go by {chosen.how} on {chosen.worker}: {left[0].how} on {left[0].worker}"
        other = replace(decision, chosen=left[0], reason=reason)
        self._at(unit).planner.book_as_decided(unit.action, other)
        return other

    def send_ahead(self, unit: Unit, parent: StateRecord) -> Prefetched | None:
        """Let the state of a unit that waits for texts travel already, where it will have to; None where it has not."""
        ((policy, _), *others) = self._by_policy(unit)
        if others:
            return None
        at = self._at(unit)
        try:
            return prefetch(at.operations, at.planner, self._edge_ahead(unit, parent), parent, self._workers, policy)
        except ClusterError:
            return None  # no worker is up now; whoever is up when the agent is ready will do

    def outside(self, worker: str) -> bool:
        """Whether a worker is none of those that the run asked for: of these, none was up."""
        return self._workers is not None and worker not in self._workers

    def _by_policy(self, unit: Unit) -> list[tuple[Policy, list[int]]]:
        """The unit's nodes by what is wanted for their edges."""
        found: list[tuple[Policy, list[int]]] = []
        for index, edge in enumerate(unit.edges):
            policy = self._overrides.get(edge, self._policy)
            same = next((members for known, members in found if known == policy), None)
            if same is None:
                found.append((policy, [index]))
            else:
                same.append(index)
        return found

    def _at(self, unit: Unit) -> Speaker:
        return self._speakers[unit.nodes[0].model]

    def _edge_ahead(self, unit: Unit, parent: StateRecord) -> Edge:
        """The edge of a unit whose texts are not all there."""
        return self._edge(unit, parent, sum(node.known_tokens for node in unit.nodes))

    def _edge(self, unit: Unit, parent: StateRecord | None, new_tokens: int) -> Edge:
        source = unit.nodes[0].parent or ""
        steps = max(node.sampling.max_new_tokens for node in unit.nodes)
        name = edge_id(source, unit.name)
        return Edge(name, source, unit.name, path_of(parent), new_tokens, len(unit.nodes), steps)
