"""The links of the crossover: two workers, states on the one, their edges to the other. Paced here, or shaped in a test bed."""

from __future__ import annotations

import itertools
import json
import os
import pydoc_data.topics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from kvlab.bench.namespaces import HUB, TestBed
from kvlab.bench.testbed import Cluster
from kvlab.config import CACHE_VARIABLE
from kvlab.errors import ClusterError
from kvlab.progress import Progress
from kvlab.runtime.handles import Generation, KVState
from kvlab.runtime.lab import Lab
from kvlab.state.tokens import BYTES_PER_ID

SOURCE, TARGET = "worker-0", "worker-1"
SUFFIX = " In one word:"
LATENCY_SECONDS = 0.001
KV_BUDGET = "6 GiB"
FASTEST = "10gbit"
_QUIET = Progress("nothing")


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run of an arm took, as it was predicted when it was decided, and how many edges went by which road."""

    seconds: float
    predicted: float
    roads: dict[str, int]


class Link(Protocol):
    """Two workers and the link between them."""

    def prepare(self, n_tokens: int, n_states: int, folder: str) -> dict[str, Any]:
        """Forget all states and put ``n_states`` of ``n_tokens`` on the source. Returns the lab's cost model as it is now.

        Those that ``folder`` has are loaded; else they are made and saved there.
        """
        ...

    def take(self, n_edges: int, how: str | None) -> Taken:
        """Run ``n_edges`` edges at once by road ``how`` (None: as kvlab decides), and bring the states back."""
        ...


class LabLink:
    """The link between the two workers of a lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._states: list[KVState] = []

    def prepare(self, n_tokens: int, n_states: int, folder: str) -> dict[str, Any]:
        """See :class:`Link`."""
        self._states.clear()
        self._lab.clear()
        saved = [Path(folder) / str(number) for number in range(n_states)]
        if not all(place.exists() for place in saved):
            for place, text in zip(saved, _texts(self._lab, n_tokens, n_states), strict=True):
                self._lab.materialize(text, worker=SOURCE).save(place)
            self._lab.clear()
        self._states = [self._lab.load(place, worker=SOURCE) for place in saved]
        return self._lab.core.cost.as_dict()

    def take(self, n_edges: int, how: str | None) -> Taken:
        """See :class:`Link`."""
        states = self._states[:n_edges]
        seconds, answers = _at_once(states, how)
        decided = [answer.decision.chosen for answer in answers]
        del answers
        for state in states:
            state.transfer(SOURCE)
        roads = itertools.groupby(sorted(chosen.how for chosen in decided))
        return Taken(seconds, max(chosen.seconds for chosen in decided), {how: len(list(some)) for how, some in roads})


class ProcessLink:
    """A link whose lab lives in another process, which is asked line by line.

    It is there once the lab is open: labs that calibrate at the same time would measure each other.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._heard()

    def prepare(self, n_tokens: int, n_states: int, folder: str) -> dict[str, Any]:
        """See :class:`Link`."""
        told: dict[str, Any] = self._ask("prepare", n_tokens=n_tokens, n_states=n_states, folder=folder)
        return told

    def take(self, n_edges: int, how: str | None) -> Taken:
        """See :class:`Link`."""
        return Taken(**self._ask("take", n_edges=n_edges, how=how))

    def _ask(self, verb: str, **arguments: Any) -> Any:
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps([verb, arguments]) + "\n")
            self._process.stdin.flush()
        return self._heard()

    def _heard(self) -> Any:
        for line in self._process.stdout or ():
            if line.startswith("{"):
                return json.loads(line)
        raise ClusterError(f"the client in the test bed ended with status {self._process.wait()}", hint="see above")


@contextmanager
def paced(model: str, rate_bits: float | None) -> Iterator[Link]:
    """Two workers of this machine whose link the sender paces to ``rate_bits`` per second; None: as fast as it goes."""
    with Lab(
        model=model,
        workers=2,
        same_host="frames",
        kv_budget=KV_BUDGET,
        security=False,  # what is asked is what the link takes
        link_rate=rate_bits,
        link_latency=LATENCY_SECONDS if rate_bits is not None else None,
        progress=_QUIET,
    ) as lab:
        yield LabLink(lab)


@contextmanager
def shaped(model: str, rate_bits: float | None) -> Iterator[Link]:
    """Two hosts whose link the kernel shapes. The client has to be inside of their bed, in a process of its own.

    Raises
    ------
    ClusterError
        When that process ends before it answers; it has said why.
    """
    from kvlab.engine.models import resolve

    folder = resolve(model, _QUIET)
    with (
        tempfile.TemporaryDirectory(prefix="kvlab-crossover-") as work,
        TestBed(2, f"{rate_bits:.0f}bit" if rate_bits is not None else FASTEST) as bed,
    ):
        cluster = Cluster(bed, Path(work))
        for host, name in zip(bed.hosts, (SOURCE, TARGET), strict=True):
            cluster.worker(host, folder, "frames", name=name)
        # What is measured of these links must not be taken for this machine's own.
        settings = os.environ | {CACHE_VARIABLE: str(Path(work) / "cache")}
        line = [sys.executable, "-m", "kvlab.bench.crossover_links", cluster.address, str(folder)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        yield ProcessLink(bed.run_in(HUB, line, env=settings, **pipes))


def _texts(lab: Lab, n_tokens: int, n: int) -> list[str]:
    """``n`` different texts of about ``n_tokens`` tokens."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    ids = lab.core.tokenizer.text_ids(text[: 12 * n_tokens * n])
    width = BYTES_PER_ID * n_tokens
    return [f"{i}. {lab.core.tokenizer.decode(ids[i * width : (i + 1) * width])}" for i in range(n)]


def _at_once(states: Sequence[KVState], how: str | None) -> tuple[float, list[Generation]]:
    """Seconds until the last of all edges has its first token."""

    def one(state: KVState) -> Generation:
        return state.resume(SUFFIX, max_new_tokens=1, worker=TARGET, how=how)

    with ThreadPoolExecutor(len(states)) as pool:
        began = time.perf_counter()
        answers = list(pool.map(one, states))
        return time.perf_counter() - began, answers


def _answer(address: str, model: str) -> None:
    """In the hub of a bed: do what is asked on standard input, until it ends."""
    from distributed import Client

    from kvlab.runtime import dask_settings
    from kvlab.runtime.worker_process import START_SECONDS

    dask_settings.apply()
    # A lab on somebody's scheduler uses the workers that are there: both must be.
    with Client(address, timeout=START_SECONDS, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=START_SECONDS)
    with Lab(address, model=model, same_host="frames", kv_budget=KV_BUDGET, progress=_QUIET) as lab:
        link = LabLink(lab)
        _say({"workers": sorted(lab.workers)})
        for line in sys.stdin:
            verb, arguments = json.loads(line)
            _say(link.prepare(**arguments) if verb == "prepare" else asdict(link.take(**arguments)))


def _say(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _answer(*sys.argv[1:])
