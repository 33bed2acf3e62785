"""Every setting is what a running worker has, and does what its comment says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvlab.runtime import dask_settings
from kvlab.runtime.dask_settings import SETTINGS


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Any]) -> Iterator[Any]:
    """One worker is enough to ask."""
    with make_lab(workers=1, kv_budget="1 GiB") as made:
        yield made


@pytest.fixture(scope="module")
def seen(lab: Any) -> dict[str, Any]:
    """What the worker, a process of its own, says it has."""
    (found,) = lab.core.client.run(dask_settings.read_back).values()
    return dict(found)


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_is_what_a_worker_process_has(seen: dict[str, Any], name: str) -> None:
    assert seen[name] == SETTINGS[name]


@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_is_one_that_dask_knows(name: str) -> None:
    """A misspelt name would be kept and read back, and do nothing."""
    import distributed
    import yaml

    known: Any = yaml.safe_load(Path(distributed.__file__).with_name("distributed.yaml").read_text())
    for part in name.split("."):
        assert part in known, name
        known = known[part]


def test_the_settings_reach_the_servers_themselves(lab: Any) -> None:
    def of_the_scheduler(dask_scheduler: Any) -> dict[str, Any]:
        return {
            "stealing": "stealing" in dask_scheduler.periodic_callbacks,
            "amm": dask_scheduler.extensions["amm"].running,
            "ttl": dask_scheduler.worker_ttl,
            "allowed_failures": dask_scheduler.allowed_failures,
            "saturation": dask_scheduler.WORKER_SATURATION,
            "no_workers": dask_scheduler.no_workers_timeout,
        }

    def of_a_worker(dask_worker: Any) -> dict[str, Any]:
        from distributed.comm.tcp import TCP

        manager = dask_worker.memory_manager
        return {
            "memory_limit": manager.memory_limit,
            "spill": manager.memory_spill_fraction,
            "pause": manager.memory_pause_fraction,
            "target": manager.memory_target_fraction,
            "threads": dask_worker.state.nthreads,
            "profiled": "profile" in dask_worker.periodic_callbacks,
            "shard": TCP.max_shard_size,
        }

    assert lab.core.client.run_on_scheduler(of_the_scheduler) == {
        "stealing": False, "amm": False, "ttl": _seconds("worker-ttl"), "allowed_failures": 10,
        "saturation": float("inf"), "no_workers": _seconds("no-workers-timeout"),
    }  # fmt: skip
    for told in lab.core.client.run(of_a_worker).values():
        assert told == {
            "memory_limit": None, "spill": False, "pause": False, "target": False, "threads": 2, "profiled": False,
            "shard": 1 << 40,
        }  # fmt: skip


def _seconds(name: str) -> float:
    from dask.utils import parse_timedelta

    return float(parse_timedelta(SETTINGS[f"distributed.scheduler.{name}"]))
