"""Run in the hub of a bed: opens a lab on its scheduler, cuts a link while a state is on its way, prints what was seen.

python loses_a_host.py ADDRESS MODEL COMMAND
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from distributed import Client

import kvlab
from kvlab.errors import KVLabError
from kvlab.progress import Progress
from kvlab.runtime import dask_settings
from kvlab.runtime.lab import Lab
from kvlab.store.events import Event, Kind

TEXT = "Keys and values of a prefix are the same for every question that follows it. " * 20


def workflow() -> kvlab.Workflow:
    wf = kvlab.Workflow("unplugged")
    first = wf.agent("first", [wf.context("paper", TEXT), "Begin."], max_new_tokens=8)
    wf.agent("second", "Go on.", continues=first, max_new_tokens=8)
    return wf


def answers(run: Any) -> dict[str, list[int]]:
    return {name: list(run[name].token_ids) for name in ("first", "second")}


def main(address: str, model: str, unplug: str) -> None:
    dask_settings.apply()
    with Client(address, timeout=60, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
    with Lab(address, model=model, same_host="frames", kv_budget="64 MiB", progress=Progress("nothing")) as lab:
        undisturbed = answers(lab.run(workflow()).wait())
        state = lab.materialize(TEXT + "unplugged", worker="worker-0")
        expected = state.resume(" so", max_new_tokens=6, worker="worker-0").token_ids
        recipes = {segment.recipe for segment in state.record.segments}
        unplugged: list[str] = []

        def look(run: str, event: Event) -> None:
            if event.kind is Kind.SEGMENT_SENT and event.segment in recipes and not unplugged:
                unplugged.append(str(event.worker))
                subprocess.run(json.loads(unplug), check=True)

        stop = lab.core.hub.listen(look)
        try:
            state.transfer("worker-1", keep=True)
            ended = "done"
        except KVLabError as error:
            ended = type(error).__name__
        stop()
        said = state.resume(" so", max_new_tokens=6).token_ids
        up = sorted(worker.name for worker in lab.workers.values() if worker.address)
        there = None
        if "worker-1" in up:  # it lives, and is cut off from the other one alone
            answer = state.resume(" so", max_new_tokens=6, worker="worker-1", how="transfer")
            there = (answer.token_ids, answer.how)
        run = answers(lab.run(workflow()).wait())
        found = {
            "unplugged": unplugged,
            "transfer": ended,
            "expected": expected,
            "said": said,
            "up": up,
            "there": there,
            "undisturbed": undisturbed,
            "run": run,
        }
        sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
