"""Hosts on one Linux machine: network namespaces behind a bridge, with links as slow as asked.

One namespace, the *hub*, has the bridge and an address on it; each host is a namespace of its own whose ``eth0`` is plugged
into it. A host's sending is shaped by ``tc``: ``tbf`` for the rate, ``netem`` for the delay. Bridge, links and shapers exist
inside the namespaces only, so nothing of the machine's own network is touched, and removing the namespaces removes all.

Processes, memory and /proc are shared: these hosts differ in their addresses and not in what memory they reach.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from kvlab.errors import ClusterError, InvalidInput

PREFIX = "kvlab-"
HUB = "hub"
_OURS = re.compile(rf"{PREFIX}(?P<pid>\d+)-.+")
_numbers = itertools.count()
"""Of the beds of this process."""
_NETWORK = "10.77.0."
_MAX_HOSTS = 200
_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_BURST_SECONDS = 0.002
"""A bucket of so much of the link's time: at 1 Gbit/s 250 kB, several of the 64 kB packets that TCP hands down at once."""
_MIN_BURST_BYTES = 1 << 17
_QUEUE_LATENCY = "50ms"
"""How long a packet may wait in the shaper. TCP keeps far less there; a shorter queue would drop and slow it down."""
_NETEM_PACKETS = 100_000
_STOP_SECONDS = 5.0


class TestBed:
    """``n_hosts`` hosts and a hub, joined by links of one rate.

    Changes: makes namespaces named ``kvlab-<pid>-…`` and removes them, and every process in them, on exit. What a killed
    earlier bed left is removed when the next one starts.

    Parameters
    ----------
    rate
        What each host may send, in tc's words: ``"1gbit"``, ``"250mbit"``.
    delay
        Added to what each host sends, such as ``"1ms"``; a round trip between two hosts takes twice as long.

    Raises
    ------
    InvalidInput
        When rate or number of hosts cannot be meant.
    ClusterError
        When the system refuses; :func:`why_not` tells beforehand.

    Examples
    --------
    >>> with TestBed(n_hosts=2, rate="1gbit") as bed:  # doctest: +SKIP
    ...     bed.run_in("host-0", ["ping", "-c1", bed.address("host-1")]).wait()
    """

    __test__ = False  # pytest collects classes named Test…

    def __init__(self, n_hosts: int = 2, rate: str = "1gbit", delay: str | None = None) -> None:
        if not 1 <= n_hosts <= _MAX_HOSTS:
            raise InvalidInput(f"n_hosts={n_hosts}", hint=f"1 to {_MAX_HOSTS}")
        self.rate, self.delay = rate, delay
        self.bits_per_second = bits_per_second(rate)
        self.hosts = tuple(f"host-{index}" for index in range(n_hosts))
        self._prefix = f"{PREFIX}{os.getpid()}-{next(_numbers)}-"
        self._processes: list[subprocess.Popen[Any]] = []

    def address(self, host: str) -> str:
        """The IPv4 address of a host or of ``"hub"``."""
        return f"{_NETWORK}{1 if host == HUB else 11 + self.hosts.index(host)}"

    def namespace(self, host: str) -> str:
        """Name of the network namespace of a host or of ``"hub"``."""
        return f"{self._prefix}{host}"

    def run_in(self, host: str, command: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Start ``command`` in a host, in a session of its own; keywords are :class:`subprocess.Popen`'s.

        It is ended with the bed, if it has not ended before.
        """
        line = ["ip", "netns", "exec", self.namespace(host), *command]
        process = subprocess.Popen(line, start_new_session=True, **popen)  # noqa: S603 - what the caller asked for
        self._processes.append(process)
        return process

    def __enter__(self) -> Self:
        remove_leftovers()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, then remove the namespaces. A second call does nothing."""
        with _undisturbed():
            for process in self._processes:
                if process.stdin is not None:
                    process.stdin.close()
                _signal_group(process, signal.SIGTERM)
            deadline = time.monotonic() + _STOP_SECONDS
            for process in self._processes:
                try:
                    process.wait(max(0.05, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    _signal_group(process, signal.SIGKILL)
                    process.wait()
            self._processes.clear()
            for name in _namespaces():
                if name.startswith(self._prefix):
                    _remove(name)

    def _make(self) -> None:
        hub = self.namespace(HUB)
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "set", "lo", "up")
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "address", "add", f"{self.address(HUB)}/24", "dev", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        for index, host in enumerate(self.hosts):
            name, port = self.namespace(host), f"port-{index}"
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", hub, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            self._shape(name)

    def _shape(self, namespace: str) -> None:
        parent = ["root"]
        if self.delay is not None:
            netem = ["root", "handle", "1:", "netem", "delay", self.delay, "limit", str(_NETEM_PACKETS)]
            _tc("-n", namespace, "qdisc", "add", "dev", "eth0", *netem)
            parent = ["parent", "1:1"]
        burst = max(_MIN_BURST_BYTES, int(self.bits_per_second / 8 * _BURST_SECONDS))
        tbf = ["tbf", "rate", self.rate, "burst", str(burst), "latency", _QUEUE_LATENCY]
        _tc("-n", namespace, "qdisc", "add", "dev", "eth0", *parent, *tbf)


def bits_per_second(rate: str) -> float:
    """What ``rate`` (tc's notation) means.

    Raises
    ------
    InvalidInput
        When it is not a positive number and bit, kbit, mbit or gbit.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?bit)", rate.lower())
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if value <= 0:
        raise InvalidInput(f"rate={rate!r}", hint='"1gbit" or "250mbit"')
    return value


def why_not(*qdiscs: str) -> str | None:
    """Why there can be no test bed here whose links are shaped by ``qdiscs`` (``"tbf"``, ``"netem"``); None if there can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"there is no {' and no '.join(missing)} on this machine (package iproute2)"
    name = f"{PREFIX}{os.getpid()}-probe"
    options = {"tbf": ["rate", "1mbit", "burst", "10kb", "latency", "50ms"], "netem": ["delay", "1ms"]}
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "bridge", "type", "bridge")
        _ip("-n", name, "link", "add", "one", "type", "veth", "peer", "name", "other")
        for qdisc in qdiscs:
            _tc("-n", name, "qdisc", "replace", "dev", "one", "root", qdisc, *options[qdisc])
    except ClusterError as error:
        return error.message
    finally:
        if name in _namespaces():
            _remove(name)
    return None


def remove_leftovers() -> list[str]:
    """Remove the namespaces, and the processes in them, of beds whose process is gone. Returns their names."""
    left = []
    for name in _namespaces():
        found = _OURS.fullmatch(name)
        if found and not Path("/proc", found["pid"]).exists():
            _remove(name)
            left.append(name)
    return left


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _ip("netns", "list").splitlines() if line.strip()]


def _remove(namespace: str) -> None:
    # The processes in a namespace of ours are ours, also those that a started one started and left.
    for pid in _ip("netns", "pids", namespace).split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            continue
    _ip("netns", "delete", namespace)


def _signal_group(process: subprocess.Popen[Any], number: int) -> None:
    if process.poll() is None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C does not interrupt the tidying up that the first one began."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ip(*arguments: str) -> str:
    return _command("ip", *arguments)


def _tc(*arguments: str) -> str:
    return _command("tc", *arguments)


def _command(*line: str) -> str:
    # In a session of its own: Ctrl-C must not cut a change of a namespace in two.
    done = subprocess.run(line, capture_output=True, text=True, check=False, start_new_session=True)  # noqa: S603
    if done.returncode:
        raise ClusterError(
            f"`{' '.join(line)}` says: {done.stderr.strip()}",
            hint="namespaces, bridge, veth, tbf and netem must be in this kernel, and root must be allowed to use them",
        )
    return done.stdout
