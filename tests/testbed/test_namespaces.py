"""Beds join hosts by shaped links and leave nothing; who is on the same host is proven by memory, not by addresses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvlab.bench import namespaces as beds
from kvlab.bench.namespaces import HUB, PREFIX, TestBed, bits_per_second, why_not
from kvlab.bench.testbed import Cluster, main
from kvlab.config import CACHE_VARIABLE
from kvlab.errors import ClusterError, InvalidInput

HERE = Path(__file__).parent
SLEEP = ["sleep", "600"]
OWN_PROCESSES = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child"]
"""Runs a command that sees, in a /proc of its own, only itself and its children: as in a container."""


def listed() -> set[str]:
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines() if line.startswith(PREFIX)}


def living_in(namespace: str) -> set[int]:
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
    return {int(pid) for pid in done.stdout.split()}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(happened: Callable[[], Any], seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="session")
def bed_possible() -> None:
    """Skips without root, or without what a bed is made of."""
    reason = why_not("tbf")
    if reason:
        pytest.skip(reason)


@pytest.fixture
def nothing_left(bed_possible: None) -> Iterator[None]:
    """Fails the test that leaves a namespace of this process."""
    yield
    assert not [name for name in listed() if name.startswith(f"{PREFIX}{os.getpid()}-")]


# -- without root


@pytest.mark.parametrize(
    ("rate", "bits"), [("1gbit", 1e9), ("1Gbit", 1e9), ("2.5mbit", 2.5e6), ("64kbit", 64e3), ("800bit", 800)]
)
def test_rates_are_read_as_tc_reads_them(rate: str, bits: float) -> None:
    assert bits_per_second(rate) == bits


@pytest.mark.parametrize("rate", ["", "fast", "1gbps", "0gbit", "-1gbit", "1", "1 gbit", "1gbit; reboot"])
def test_other_rates_are_refused(rate: str) -> None:
    with pytest.raises(InvalidInput, match="rate=") as caught:
        TestBed(rate=rate)
    assert "1gbit" in caught.value.hint


@pytest.mark.parametrize("n_hosts", [0, 201])
def test_so_many_hosts_are_refused(n_hosts: int) -> None:
    with pytest.raises(InvalidInput, match="n_hosts="):
        TestBed(n_hosts)


def test_without_the_tools_it_says_so_in_one_line_and_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--out", str(tmp_path / "out")]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("test bed skipped: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("bed_possible")
def test_without_root_it_says_so_in_one_line_and_succeeds(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    line = [sys.executable, "-c", "import sys; from kvlab.bench.testbed import main; sys.exit(main(['--out', 'out']))"]
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", *line],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "test bed skipped: only root can make network namespaces\n"


# -- the bed itself


@pytest.mark.usefixtures("nothing_left")
def test_hosts_reach_each_other_over_links_that_are_shaped() -> None:
    listen = "import socket; s = socket.create_server(('', 9)); c, a = s.accept(); print(a[0], len(c.recv(9)))"
    with TestBed(n_hosts=2, rate="20mbit") as bed:
        assert [bed.address(host) for host in (HUB, *bed.hosts)] == ["10.77.0.1", "10.77.0.11", "10.77.0.12"]
        server = bed.run_in("host-1", [sys.executable, "-c", listen], stdout=subprocess.PIPE, text=True)
        speak = f"import socket; socket.create_connection(({bed.address('host-1')!r}, 9)).send(b'hello')"
        wait_until(lambda: bed.run_in("host-0", [sys.executable, "-c", speak], stderr=subprocess.DEVNULL).wait() == 0)
        assert server.communicate(timeout=20)[0] == "10.77.0.11 5\n"
        for host in bed.hosts:
            shape = ["tc", "-n", bed.namespace(host), "qdisc", "show", "dev", "eth0"]
            assert "qdisc tbf" in (shown := subprocess.run(shape, capture_output=True, text=True, check=True).stdout)
            assert "rate 20Mbit" in shown


@pytest.mark.usefixtures("nothing_left")
def test_a_bed_ends_every_process_in_it_also_those_that_others_started() -> None:
    daemon = f"import subprocess; subprocess.Popen({SLEEP!r}, start_new_session=True)"
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    with TestBed(n_hosts=1) as bed:
        bed.run_in("host-0", SLEEP)
        bed.run_in(HUB, [sys.executable, "-c", daemon]).wait()
        stubborn = bed.run_in(HUB, [sys.executable, "-c", deaf], stdout=subprocess.PIPE)
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        pids = wait_until(lambda: living_in(bed.namespace("host-0"))) | living_in(bed.namespace(HUB))
        assert len(pids) == 3
        assert all(alive(pid) for pid in pids)
    assert not any(alive(pid) for pid in pids)
    bed.close()


@pytest.mark.usefixtures("nothing_left")
def test_an_error_takes_the_bed_down_and_passes_through() -> None:
    started: list[int] = []

    def fail_in_a_bed() -> None:
        with TestBed(n_hosts=1) as bed:
            started.append(bed.run_in("host-0", SLEEP).pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_a_bed()
    assert not alive(started[0])


@pytest.mark.usefixtures("nothing_left")
def test_a_bed_that_cannot_be_made_leaves_no_half() -> None:
    with pytest.raises(ClusterError, match="delay nonsense"), TestBed(n_hosts=1, delay="nonsense"):
        pass


@pytest.mark.usefixtures("nothing_left")
def test_two_beds_of_one_process_are_apart() -> None:
    with TestBed(n_hosts=1) as one, TestBed(n_hosts=1) as other:
        assert one.namespace(HUB) != other.namespace(HUB)
        assert {one.namespace(HUB), other.namespace(HUB)} <= listed()


BED_THAT_WAITS = """
import signal, sys
from kvlab.bench.namespaces import HUB, TestBed
from kvlab.bench.testbed import _end
signal.signal(signal.SIGTERM, _end)
with TestBed(n_hosts=1) as bed:
    process = bed.run_in(HUB, ["sleep", "600"])
    print(process.pid, flush=True)
    process.wait()
"""


def bed_of_another_process() -> tuple[subprocess.Popen[str], int]:
    other = subprocess.Popen(
        [sys.executable, "-c", BED_THAT_WAITS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert other.stdout is not None
    return other, int(other.stdout.readline())


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_takes_the_bed_down(number: signal.Signals) -> None:
    other, pid = bed_of_another_process()
    assert any(name.startswith(f"{PREFIX}{other.pid}-") for name in listed())
    assert alive(pid)
    other.send_signal(number)
    assert other.wait(30) != 0
    assert not any(name.startswith(f"{PREFIX}{other.pid}-") for name in listed())
    assert not alive(pid)


@pytest.mark.usefixtures("nothing_left")
def test_what_a_killed_one_left_goes_when_the_next_starts_and_a_living_one_stays() -> None:
    killed, orphan = bed_of_another_process()
    living, servant = bed_of_another_process()
    killed.kill()
    killed.wait()
    assert any(name.startswith(f"{PREFIX}{killed.pid}-") for name in listed())
    assert alive(orphan)
    with TestBed(n_hosts=1):
        assert not any(name.startswith(f"{PREFIX}{killed.pid}-") for name in listed())
        assert not alive(orphan)
        assert any(name.startswith(f"{PREFIX}{living.pid}-") for name in listed())
        assert alive(servant)
    living.terminate()
    living.wait(30)


@pytest.mark.usefixtures("nothing_left")
def test_asking_whether_a_bed_is_possible_leaves_nothing() -> None:
    assert why_not("tbf") is None
    assert beds.remove_leftovers() == []


# -- states in it


@pytest.fixture
def carried(tiny_model_dir: str, tmp_path: Path, nothing_left: None) -> Iterator[Callable[..., Any]]:
    """``carried(bed, start)``: what a lab in the hub sees when a state goes from one worker to the other."""

    def carry(bed: TestBed, start: Callable[[Cluster, Path], None]) -> Any:
        model = Path(tiny_model_dir)
        cluster = Cluster(bed, tmp_path)
        start(cluster, model)
        line = [sys.executable, str(HERE / "carries_a_state.py"), cluster.address, tiny_model_dir]
        environment = os.environ | {CACHE_VARIABLE: str(tmp_path / "cache")}
        client = bed.run_in(HUB, line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        printed, complaint = client.communicate(timeout=90)
        said = "\n".join(log.read_text()[-2000:] for log in tmp_path.glob("*.log"))
        assert client.returncode == 0, f"{complaint[-3000:]}\n{said}"
        found = json.loads(printed)
        ((_, first),) = found["copies"]["a"]
        ((_, second),) = found["copies"]["b"]
        assert first == second
        assert found["said"]["a"] == found["said"]["b"]
        return found

    return carry


def arrivals(found: Any) -> tuple[str, list[Any]]:
    ((arrived, _),) = found["copies"]["b"]
    return arrived, found["received"]


def host_of(probe: Any) -> str:
    return str(probe["address"].rpartition(":")[0])


@pytest.mark.slow
def test_other_addresses_and_one_memory_are_one_host(carried: Callable[..., Any]) -> None:
    def start(cluster: Cluster, model: Path) -> None:
        cluster.worker("host-0", model, "map", name="a")
        cluster.worker("host-1", model, "map", name="b")

    with TestBed(n_hosts=2) as bed:
        found = carried(bed, start)
    assert {host_of(probe) for probe in found["probes"].values()} == {"tcp://10.77.0.11", "tcp://10.77.0.12"}
    assert arrivals(found) == ("map", [["b", "map", 0]])


@pytest.mark.slow
def test_one_address_and_memories_apart_are_two_hosts(carried: Callable[..., Any]) -> None:
    """As two containers of one pod: they share the network, but no process of the other is in their /proc."""

    def start(cluster: Cluster, model: Path) -> None:
        for name in ("a", "b"):
            cluster.worker("host-0", model, "map", name=name, wrapped=OWN_PROCESSES)

    with TestBed(n_hosts=1) as bed:
        found = carried(bed, start)
    probes = found["probes"].values()
    assert {host_of(probe) for probe in probes} == {"tcp://10.77.0.11"}
    # Even the numbers in their probes are equal, so each finds a probe of its own where the other's is said to be.
    assert len({(probe["pid"], probe["fd"]) for probe in probes}) == 1
    assert len({probe["nonce"] for probe in probes}) == 2
    assert arrivals(found) == ("transfer", [["b", "transfer", found["nbytes"]]])


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_a_measured_state_is_no_faster_than_its_link(tiny_model_dir: str, tmp_path: Path) -> None:
    size, rounds = 4_000_000, 2
    line = ["--rate", "100mbit", "--out", str(tmp_path), "--model", tiny_model_dir]
    assert main([*line, "--state-bytes", str(size), "--rounds", str(rounds)]) == 0
    record = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    metrics = record["metrics"]
    assert set(metrics) == {"fraction_of_link", "transfer_seconds", "payload_bytes", "link_bits_per_second"}
    assert abs(metrics["payload_bytes"]["value"] - size) < 1000
    assert metrics["link_bits_per_second"]["value"] == 1e8
    fraction = metrics["fraction_of_link"]
    assert (fraction["n"], fraction["kind"]) == (rounds, "measured")
    # Without the shaper it would be 10 and more; the bucket lets a few per cent through at once.
    assert 0.1 < fraction["lo"] <= fraction["hi"] < 1.05
    assert record["environment"]["rate"] == "100mbit"
    assert [one.split("//")[1].split(":")[0] for one in record["environment"]["hosts"]] == ["10.77.0.11", "10.77.0.12"]
