"""A state across a link of known rate: hosts made of network namespaces, a plain Dask scheduler, real kvlab workers.

    python -m kvlab.bench.testbed --rate 1gbit --delay 1ms --out DIR

Linux and root. A scheduler that knows nothing of kvlab runs in the hub of a :class:`~kvlab.bench.namespaces.TestBed`, a
``kvlab worker`` in each of its two hosts, and a client in the hub opens a lab on them, hands a state from one to the other
as frames, and writes what share of the link's rate its payload got. The workers are told not to map: these hosts share
their memory, which hosts that are joined by a link do not.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvlab.bench.namespaces import HUB, TestBed, bits_per_second, why_not
from kvlab.bench.summary import environment, measured, median_of, summary, write_summary
from kvlab.config import CACHE_VARIABLE, set_up_logging
from kvlab.errors import ClusterError, KVLabError
from kvlab.progress import SHOWN, Progress

ROUNDS = 7
STATE_BYTES = 400_000_000
PORT = 8786
_EXIT_TERMINATED = 128 + signal.SIGTERM


class Cluster:
    """A plain Dask scheduler in the hub of a bed, and kvlab workers in its hosts. Ends with the bed.

    ``logs`` is a folder for what they say, and for what Dask writes.
    """

    def __init__(self, bed: TestBed, logs: Path) -> None:
        self._bed, self._logs = bed, logs
        self.address = f"tcp://{bed.address(HUB)}:{PORT}"
        scheduler = ["-m", "distributed.cli.dask_scheduler", "--host", bed.address(HUB), "--port", str(PORT)]
        self._start(HUB, HUB, [sys.executable, *scheduler, "--no-dashboard", "--dashboard-address", "127.0.0.1:0"])

    def worker(self, host: str, model: Path, same_host: str, *, name: str, wrapped: Sequence[str] = ()) -> None:
        """Start ``kvlab worker`` in ``host`` with the model in folder ``model``; ``wrapped`` is a command that runs it."""
        line = [sys.executable, "-m", "kvlab", "worker", self.address, "--name", name, "--model", str(model)]
        more = ["--same-host", same_host, "--local-directory", str(self._logs / f"{name}-dask"), "--watch-stdin"]
        self._start(host, name, [*wrapped, *line, *more])

    def _start(self, host: str, name: str, line: list[str]) -> None:
        with (self._logs / f"{name}.log").open("wb") as log:
            self._bed.run_in(host, line, stdin=subprocess.PIPE, stdout=log, stderr=log)


def run(
    out: Path,
    model: str,
    *,
    rate: str = "1gbit",
    delay: str | None = None,
    state_bytes: int = STATE_BYTES,
    rounds: int = ROUNDS,
    progress: Progress = SHOWN,
) -> None:
    """Make the bed, measure in it, write ``out/summary.json``, and take it down.

    Raises
    ------
    ClusterError
        When the client in the bed does not come to its end; it has said why, and its logs stay in ``out``.
    """
    from kvlab.engine.models import resolve

    folder = resolve(model, progress)
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    inside = [sys.executable, "-m", "kvlab.bench.testbed", "--rate", rate, "--out", str(out), "--model", str(folder)]
    inside += ["--state-bytes", str(state_bytes), "--rounds", str(rounds)]
    inside += ["--delay", delay] if delay is not None else []
    with TestBed(2, rate, delay) as bed, tempfile.TemporaryDirectory(prefix="kvlab-bed-") as cache:
        cluster = Cluster(bed, logs)
        for host in bed.hosts:
            cluster.worker(host, folder, "frames", name=host)
        # What is measured of these links must not be taken for this machine's own.
        client = bed.run_in(HUB, [*inside, "--inside", cluster.address], env=os.environ | {CACHE_VARIABLE: cache})
        if client.wait():
            raise ClusterError(f"the client in the test bed ended with status {client.returncode}", hint=f"see {logs}")


def measure(
    address: str, out: Path, model: str, *, rate: str, delay: str | None, state_bytes: int, rounds: int
) -> dict[str, Any]:
    """In the hub: open a lab on the scheduler at ``address``, hand the state on ``rounds`` times, write the summary."""
    from distributed import Client

    from kvlab.bench.handoff import Handoff, in_turns, read
    from kvlab.runtime import dask_settings
    from kvlab.runtime.lab import Lab
    from kvlab.runtime.worker_process import START_SECONDS

    dask_settings.apply()
    began = time.perf_counter()
    # A lab on somebody's scheduler uses the workers that are there: both must be.
    with Client(address, timeout=START_SECONDS, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=START_SECONDS)
    with Lab(address, model=model, same_host="frames") as lab:
        state = Handoff(lab, state_bytes)
        with SHOWN.task(f"Moving {state.nbytes / 1e6:.0f} MB over {rate}, {rounds} rounds"):
            (seconds,) = in_turns([lambda: state.over("transfer", read).task_seconds], rounds)
        name, dtype = lab.core.model.name, lab.core.config.dtype
        hosts = sorted(f"{worker.name} {worker.address}" for worker in lab.workers.values())
    bits = bits_per_second(rate)
    metrics = {
        "fraction_of_link": median_of([state.nbytes * 8 / one / bits for one in seconds], "of 1"),
        "transfer_seconds": median_of(seconds, "s"),
        "payload_bytes": measured(state.nbytes, "B"),
        "link_bits_per_second": measured(bits, "bit/s"),
    }
    where = environment(
        model=name, dtype=dtype, rate=rate, delay=delay, hosts=hosts, rounds=rounds, seconds=time.perf_counter() - began
    )
    record = summary("testbed", metrics, where)
    write_summary(out, record)
    return record


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Says in one line why it skips, where there can be no test bed, and returns 0 then too."""
    chosen = _parser().parse_args(arguments)
    set_up_logging()
    signal.signal(signal.SIGTERM, _end)
    settings = {"rate": chosen.rate, "state_bytes": chosen.state_bytes, "rounds": chosen.rounds}
    try:
        if chosen.inside:
            measure(chosen.inside, chosen.out, chosen.model, delay=chosen.delay, **settings)
            return 0
        reason = why_not("tbf")
        if reason:
            SHOWN.say(f"test bed skipped: {reason}")
            return 0
        delay = chosen.delay
        no_delay = why_not("netem") if delay else None
        if no_delay:
            SHOWN.say(f"without the delay of {delay}, which this kernel cannot make: {no_delay}")
            delay = None
        run(chosen.out, chosen.model, delay=delay, **settings)
    except KVLabError as error:
        SHOWN.say(f"{error.message}\n  Try: {error.hint}")
        return 2
    except KeyboardInterrupt:
        return 130
    SHOWN.say(str(chosen.out / "summary.json"))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kvlab.bench.testbed", description="A state across a shaped link.")
    parser.add_argument("--rate", default="1gbit", help="of each host's link, as tc says it (default: %(default)s)")
    parser.add_argument("--delay", help="one way, such as 1ms (default: none)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--model", default="smollm2", help="embedded name, folder or hub name (default: %(default)s)")
    parser.add_argument("--state-bytes", type=int, default=STATE_BYTES, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="default: %(default)s")
    parser.add_argument("--inside", metavar="ADDRESS", help=argparse.SUPPRESS)
    return parser


def _end(*_: object) -> None:
    """SIGTERM ends the program as an exception does, so that the bed is taken down."""
    raise SystemExit(_EXIT_TERMINATED)


if __name__ == "__main__":
    raise SystemExit(main())
