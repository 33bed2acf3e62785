"""Which workers may work for a lab: those of its own kvlab, with the same weights, joined as it expects.

A worker that differs would give other answers, so it is refused by name, and both sides are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import kvlab
from kvlab.errors import ClusterError
from kvlab.runtime.core import WorkerSeen
from kvlab.runtime.engines import ModelSpec
from kvlab.runtime.worker_plugin import PLUGIN_NAME, plugin_of
from kvlab.state.identity import KVConfig, ModelIdentity
from kvlab.transport.link_pace import LinkPace

_SHOWN_DIGITS = 12


def told_by(client: Any, model: str, workers: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """What each kvlab worker of ``workers`` (addresses; all by default) says of itself, by address. Changes nothing.

    Raises
    ------
    ClusterError
        If one that serves ``model`` runs another version of kvlab.
    """
    # Asked first, and sent by value: another version may not have the functions that this one asks with.
    versions = client.run(_by_value(), workers=workers, on_error="return")
    found = {address: one for address, one in versions.items() if isinstance(one, tuple)}
    others = {address: version for address, (version, serves) in found.items() if version != kvlab.__version__}
    for address, version in others.items():
        if found[address][1] == model:
            raise ClusterError(
                f"the worker at {address} runs kvlab {version}, this lab runs kvlab {kvlab.__version__}",
                hint="install the same version on both, and start the worker again",
            )
    same = [address for address in found if address not in others]
    told: dict[str, dict[str, Any]] = client.run(_describe, workers=same) if same else {}
    return told


def agreed(
    told: dict[str, dict[str, Any]], n_workers: int, spec: ModelSpec, same_host: str, pace: LinkPace | None
) -> tuple[dict[str, Any], dict[str, WorkerSeen]]:
    """What the workers of ``spec`` agree on, and who they are, by name; ``n_workers`` were asked.

    Raises
    ------
    ClusterError
        If there is none, or one differs from the others or from what this lab wants.
    """
    mine = {address: one for address, one in told.items() if one["identity"].name == spec.name}
    if not mine:
        others = ", ".join(sorted({one["identity"].name for one in told.values()})) or "no model of kvlab"
        raise ClusterError(
            f"none of the {n_workers} workers serves {spec.name}; they serve {others}",
            hint=f"start one with `kvlab worker ADDRESS --model {spec.name}`",
        )
    first = next(iter(mine.values()))
    for address, one in mine.items():
        require_same(first["address"], (first["identity"], first["config"]), address, one)
        if one["same_host"] != same_host:
            raise ClusterError(
                f"the worker at {address} was started with --same-host {one['same_host']}, this lab with {same_host}",
                hint=f"Lab(..., same_host={one['same_host']!r}), or start the workers otherwise",
            )
        if one["pace"] != pace:
            raise ClusterError(
                f"the worker at {address} has {_links(one['pace'])}, this lab has {_links(pace)}",
                hint="a lab paces the links of the workers that it starts; leave out --link-rate for others",
            )
        if spec.dtype not in ("auto", one["config"].dtype):
            raise ClusterError(
                f"the worker at {address} computes in {one['config'].dtype}, this lab wants {spec.dtype}",
                hint=f"start the workers with --dtype {spec.dtype}",
            )
    fields = ("host", "pid", "cores", "device", "memory_bytes")
    seen = {
        one["name"]: WorkerSeen(one["name"], address, *(one[field] for field in fields))
        for address, one in mine.items()
    }
    return first, seen


def require_same(whose: str, serves: tuple[ModelIdentity, KVConfig], address: str, other: dict[str, Any]) -> None:
    """Raise if the worker at ``address`` serves other weights or settings under the name that ``whose`` serves too."""
    (identity, config), (its, its_config) = serves, (other["identity"], other["config"])
    if (identity, config) == (its, its_config):
        return
    pairs = [("weights", identity.weights, its.weights), ("tokenizer", identity.tokenizer, its.tokenizer)]
    pairs += [(name, str(getattr(config, name)), str(getattr(its_config, name))) for name in KVConfig.__slots__]
    differ = [(name, mine[:_SHOWN_DIGITS], yours[:_SHOWN_DIGITS]) for name, mine, yours in pairs if mine != yours]
    one, two = (", ".join(f"{pair[0]} {pair[side]}" for pair in differ) for side in (1, 2))
    raise ClusterError(
        f"the workers at {whose} and {address} serve different weights or settings under the name {identity.name}: "
        f"{one}; and {two}",
        hint="start all workers with the same model folder, device and dtype",
        fields=[pair[0] for pair in differ],
    )


def _by_value() -> Any:
    # Dask pickles a function that is no module's own with its code.
    def version(dask_worker: Any) -> tuple[str, str] | None:
        import kvlab

        plugin = dask_worker.plugins.get("kvlab")
        return None if plugin is None else (kvlab.__version__, plugin.model.name)

    return version


def _describe(dask_worker: Any) -> dict[str, Any] | None:
    return plugin_of(dask_worker).describe() if PLUGIN_NAME in dask_worker.plugins else None


def _links(pace: LinkPace | None) -> str:
    return "links that are not paced" if pace is None else f"links paced to {pace}"
