"""Is the peer on this host? Proven, not guessed from addresses.

Each worker holds a small memfd with a nonce and announces (pid, fd, nonce) in the handshake of every connection it
opens. Who is about to send opens the peer's probe through /proc and reads it. If the nonce is there, the peer's memory
can be reached from here, and so can ours from there. Anything else means: not the same host, send bytes. So does a peer
of another user: /proc shows descriptors to their own user alone, and it is asked whose memory it is.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from typing import Any

from kvlab.transport.memory import available, own_pid

HANDSHAKE_KEY = "kvlab-probe"
_NONCE_BYTES = 16

_lock = threading.Lock()
_own: dict[str, Any] | None = None
_seen: dict[str, bool] = {}


def own_probe() -> dict[str, Any] | None:
    """The probe of this process, made at first use; None where memory cannot be mapped."""
    global _own  # noqa: PLW0603 - one probe a process, for as long as it lives
    if not available():
        return None
    with _lock:
        if _own is None:
            nonce = secrets.token_bytes(_NONCE_BYTES)
            fd = os.memfd_create("kvlab-probe", os.MFD_CLOEXEC)
            os.write(fd, nonce)
            _own = {"pid": own_pid(), "fd": fd, "nonce": nonce.hex()}
        return dict(_own)


def reachable(probe: dict[str, Any] | None) -> bool:
    """Whether the process that announced ``probe`` shares this host's memory. Remembers the answer by nonce."""
    nonce = probe.get("nonce") if probe else None
    if not probe or not isinstance(nonce, str):
        return False
    if nonce not in _seen:
        try:
            _seen[nonce] = _read_back(probe) == nonce
        except OSError:  # no descriptor is left to look with, which says nothing of the peer
            return False
    return _seen[nonce]


def _read_back(probe: dict[str, Any]) -> str | None:
    try:
        fd = os.open(f"/proc/{probe.get('pid')}/fd/{probe.get('fd')}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return None
    try:
        # Root could read anybody's; whose memory it is counts there, too.
        return os.pread(fd, _NONCE_BYTES, 0).hex() if os.fstat(fd).st_uid == os.geteuid() else None
    except OSError:
        return None
    finally:
        os.close(fd)


def announce(server: Any) -> None:
    """Let ``server`` (a Dask worker) show its probe in the handshakes of the connections it opens."""
    probe = own_probe()
    if probe is not None:
        server.connection_args.setdefault("handshake_overrides", {})[HANDSHAKE_KEY] = probe
