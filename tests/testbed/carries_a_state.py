"""Run in the hub of a bed: opens a lab on its scheduler, carries a state from one worker to another, prints what was seen.

python carries_a_state.py ADDRESS MODEL
"""

from __future__ import annotations

import json
import sys
from typing import Any

from distributed import Client

from kvlab.progress import Progress
from kvlab.runtime import dask_settings
from kvlab.runtime.lab import Lab
from kvlab.store.events import Kind

TEXT = "Keys and values of a prefix are the same for every question that follows it. " * 4


def copies(recipes: list[str], dask_worker: Any = None) -> dict[str, tuple[str, str]]:
    """How each of the segments came to a worker, and the checksum of its bytes as they lie there."""
    from kvlab.runtime.keys import recipe_in
    from kvlab.transport.segment import checksum

    return {
        recipe: (value.arrived, checksum(value.tensor()))
        for key, value in dask_worker.data.items()
        if (recipe := recipe_in(key)) in recipes
    }


def probe(dask_worker: Any = None) -> dict[str, Any]:
    """What the worker announces of itself."""
    from kvlab.transport.samehost import own_probe

    return {"address": dask_worker.address, **(own_probe() or {})}


def main(address: str, model: str) -> None:
    dask_settings.apply()
    with Client(address, timeout=60, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
    with Lab(address, model=model, progress=Progress("nothing")) as lab:
        source, target = sorted(lab.workers)
        events: list[Any] = []
        stop = lab.core.hub.listen(lambda run, event: events.append(event))
        state = lab.materialize(TEXT, worker=source)
        state.transfer(target, keep=True)
        recipes = [segment.recipe for segment in state.record.segments]
        where = {name: lab.core.address_of(name)[0] for name in (source, target)}
        there = lab.core.client.run(copies, recipes, workers=list(where.values()))
        probes = lab.core.client.run(probe, workers=list(where.values()))
        said = {name: state.resume(" And so", max_new_tokens=6, worker=name).token_ids for name in (source, target)}
        lab.core.hub.settle()
        stop()
        received = [
            (event.worker, event.detail["how"], event.nbytes)
            for event in events
            if event.kind is Kind.SEGMENT_RECEIVED and event.segment in recipes
        ]
        found = {
            "nbytes": state.nbytes,
            "copies": {name: sorted(there[at].values()) for name, at in where.items()},
            "probes": {name: probes[at] for name, at in where.items()},
            "received": received,
            "said": said,
        }
        sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
