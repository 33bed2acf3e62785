"""A peer is on this host if its probe can be read through /proc, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvlab.transport.samehost import HANDSHAKE_KEY, announce, own_probe, reachable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd is Linux's")


def test_a_process_reaches_its_own_probe() -> None:
    probe = own_probe()
    assert probe is not None
    assert reachable(probe)
    assert own_probe() == probe


def test_no_probe_is_not_the_same_host() -> None:
    assert not reachable(None)
    assert not reachable({})


@pytest.mark.parametrize(
    "change",
    [{"nonce": "00" * 16}, {"nonce": "11" * 16, "pid": 999_999_999}, {"nonce": "22" * 16, "fd": 999_999}],
    ids=["wrong nonce", "other process", "closed descriptor"],
)
def test_anything_else_is_not(change: dict[str, object]) -> None:
    probe = own_probe()
    assert probe is not None
    assert not reachable({**probe, **change})


@pytest.mark.parametrize(
    "probe", [{"pid": 1}, {"nonce": "33" * 16}, {"nonce": "44" * 16, "pid": "x", "fd": None}, {"nonce": 5}]
)
def test_a_probe_of_an_unknown_form_is_not(probe: dict[str, object]) -> None:
    assert not reachable(probe)


@pytest.mark.timeout(10)
def test_a_descriptor_that_holds_something_else_is_not(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        # Opening a pipe that nobody writes to would wait for ever, on the event loop of the sender.
        assert not reachable({"pid": os.getpid(), "fd": reader, "nonce": "55" * 16})
    finally:
        os.close(reader)


def test_the_probe_of_another_process_is_reachable_while_it_lives() -> None:
    code = """
import sys
from kvlab.transport.samehost import own_probe
probe = own_probe()
print(probe["pid"], probe["fd"], probe["nonce"], flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        pid, fd, nonce = other.stdout.readline().split()
        assert reachable({"pid": int(pid), "fd": int(fd), "nonce": nonce})
        other.kill()
    assert not reachable({"pid": int(pid), "fd": int(fd), "nonce": "66" * 16})


def test_announcing_adds_the_probe_to_every_handshake() -> None:
    server = SimpleNamespace(connection_args={"handshake_overrides": {"compression": None}})
    announce(server)
    assert server.connection_args["handshake_overrides"] == {"compression": None, HANDSHAKE_KEY: own_probe()}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_memory_of_another_user_is_neither_shown_nor_taken() -> None:
    """Descriptors go through /proc, which shows them to their own user; root sees all, and still takes only its own."""
    from kvlab.transport.memory import Block, map_offer

    code = """
import os, sys
from kvlab.transport.memory import Block, map_offer
from kvlab.transport.samehost import own_probe
os.setuid(65534)
block, probe = Block.create(4096), own_probe()
print(*map_offer(block).values(), probe["fd"], probe["nonce"], flush=True)
pid, fd = sys.stdin.readline().split()
try:
    os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY)
    print("got in", flush=True)
except PermissionError:
    print("kept out", flush=True)
sys.stdin.read()
"""
    own = Block.create(4096)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nobody:
        assert nobody.stdin is not None
        assert nobody.stdout is not None
        pid, fd, inode, nbytes, probe, nonce = nobody.stdout.readline().split()
        os.close(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY))  # the kernel would let root
        with pytest.raises(OSError, match="no longer the block that was offered"):
            Block.open(int(pid), int(fd), int(inode), int(nbytes))
        assert not reachable({"pid": int(pid), "fd": int(probe), "nonce": nonce})
        mine = map_offer(own)
        nobody.stdin.write(f"{mine['pid']} {mine['fd']}\n")
        nobody.stdin.flush()
        assert nobody.stdout.readline() == "kept out\n"
        nobody.kill()
