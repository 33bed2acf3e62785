"""The KV budget: how many bytes of K/V may lie on this host, and on each device. Room is reserved before work is submitted.

A device is a worker: on a CPU its share of the host's memory, on CUDA the memory of its GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kvlab.errors import NoRoom


@dataclass(frozen=True, slots=True)
class Holder:
    """Something that takes room: its name, its bytes, the devices where they lie, and why it cannot be evicted now."""

    name: str
    nbytes: int
    devices: frozenset[str] = frozenset()
    why: str = ""

    def __str__(self) -> str:
        return f"{self.name} {_mib(self.nbytes)} MiB" + (f" ({self.why})" if self.why else "")


Holders = Callable[[], list[Holder]]


class MakeRoom(Protocol):
    """Frees room, on ``device`` if that is named, and returns how many bytes it freed; asked again while it frees any.

    Without ``evict`` it only waits for what is on its way out already. It evicts nobody where ``nbytes`` cannot be had.
    """

    def __call__(self, nbytes: int, device: str | None, *, evict: bool) -> int:
        """Frees room."""
        ...


class Wanted(NamedTuple):
    """Room to be set aside: ``nbytes`` under ``name``, on ``device`` if that is named.

    ``on_host`` says how many bytes are new to the host, where that differs: memory that is shared is counted there already.
    """

    name: str
    nbytes: int
    device: str | None = None
    on_host: int | None = None


class _Held(NamedTuple):
    """One reservation: bytes of the host, and bytes of a device."""

    nbytes: int
    device: str | None = None
    on_device: int = 0


class _Short(NamedTuple):
    """Why a reservation does not fit: bytes that are missing, free and allowed, of the host or of a device."""

    missing: int
    free: int
    limit: int
    device: str | None


class Budget:
    """Counts reservations of distinct memory against a limit, and those of each device against theirs. Thread-safe.

    Parameters
    ----------
    limit_bytes, device_limit_bytes
        The limits; None sets none for devices.
    holders
        Gives what lies there, largest first, for the error message.
    make_room
        Called where a reservation does not fit, and with no lock of the budget held.
    """

    def __init__(
        self,
        limit_bytes: int,
        holders: Holders,
        make_room: MakeRoom | None = None,
        device_limit_bytes: int | None = None,
    ) -> None:
        self.limit_bytes, self.device_limit_bytes = limit_bytes, device_limit_bytes
        self._holders, self._make_room = holders, make_room
        self._lock = threading.Lock()
        self._reserved: dict[str, _Held] = {}

    @property
    def used_bytes(self) -> int:
        """Reserved now."""
        with self._lock:
            return sum(held.nbytes for held in self._reserved.values())

    def used_on(self, device: str) -> int:
        """Reserved now on one device."""
        with self._lock:
            return self._on(device)

    def has(self, name: str) -> bool:
        """Whether anything is reserved under ``name``, be it no bytes."""
        with self._lock:
            return name in self._reserved

    def held(self, prefix: str, device: str | None = None) -> int:
        """Bytes reserved under ``prefix`` itself and under names that begin with it and ``@``, on ``device`` if named."""
        with self._lock:
            mine = [held for name, held in self._reserved.items() if name == prefix or name.startswith(f"{prefix}@")]
        if device is None:
            return sum(held.nbytes for held in mine)
        return sum(held.on_device for held in mine if held.device == device)

    def held_for(self, suffix: str) -> int:
        """Bytes reserved under names that end with ``suffix``."""
        with self._lock:
            return sum(held.nbytes for name, held in self._reserved.items() if name.endswith(suffix))

    def reserve(
        self,
        name: str,
        nbytes: int,
        what: str,
        *,
        device: str | None = None,
        on_host: int | None = None,
        evict: bool = True,
    ) -> None:
        """As :meth:`reserve_all`, for one :class:`Wanted`."""
        self.reserve_all([Wanted(name, nbytes, device, on_host)], what, evict=evict)

    def reserve_all(self, wanted: Sequence[Wanted], what: str, *, evict: bool = True) -> None:
        """Set aside all of ``wanted`` for ``what``, or nothing, replacing what was reserved under the same names.

        Whoever holds a part of what he needs and waits for the rest could wait for somebody who does the same. Where
        there is no room, what nobody uses at the moment is evicted first, unless ``evict`` is false.

        Raises
        ------
        NoRoom
            With need, have and who holds what; the reservations are as before.
        """
        held = {
            one.name: _Held(
                one.nbytes if one.on_host is None else one.on_host,
                one.device,
                one.nbytes if one.device is not None else 0,
            )
            for one in wanted
        }
        nbytes = sum(one.nbytes for one in wanted)
        while (short := self._try(held)) is not None:
            # What is more than everything would only evict everything before it fails.
            if (
                self._make_room is None
                or short.missing + short.free > short.limit
                or self._make_room(short.missing, short.device, evict=evict) <= 0
            ):
                raise self._no_room(what, nbytes, short)

    def hold(self, name: str, nbytes: int, device: str | None = None) -> None:
        """Set aside ``nbytes`` under ``name``, whether there is room or not: they are taken already."""
        with self._lock:
            self._reserved[name] = _Held(nbytes, device, nbytes if device is not None else 0)

    def exchange_devices(self, name: str, other: str) -> None:
        """What two names hold of the host stays; where it lies is exchanged. Nothing happens unless both are known."""
        with self._lock:
            first, second = self._reserved.get(name), self._reserved.get(other)
            if first is not None and second is not None:
                self._reserved[name] = _Held(first.nbytes, second.device, second.on_device)
                self._reserved[other] = _Held(second.nbytes, first.device, first.on_device)

    def inherited(self, name: str, device: str | None, heir: str) -> None:
        """What is reserved under ``name`` on ``device`` (None: on whichever) lies on ``heir`` now, if there is room or not."""
        with self._lock:
            held = self._reserved.get(name)
            if held is not None and held.device is not None and device in (None, held.device):
                self._reserved[name] = held._replace(device=heir)

    def release_all(self, prefix: str) -> None:
        """Give back everything reserved under names that begin with ``prefix``."""
        with self._lock:
            for name in [name for name in self._reserved if name.startswith(prefix)]:
                del self._reserved[name]

    def release(self, name: str) -> None:
        """Give back what is reserved under ``name``; unknown names are ignored."""
        with self._lock:
            self._reserved.pop(name, None)

    def _try(self, wanted: Mapping[str, _Held]) -> _Short | None:
        """Reserve all if it fits; else say what is missing."""
        with self._lock:
            others = [held for name, held in self._reserved.items() if name not in wanted]
            free = self.limit_bytes - sum(held.nbytes for held in others)
            need = sum(held.nbytes for held in wanted.values())
            if need > free:
                return _Short(need - free, free, self.limit_bytes, None)
            for device in sorted({held.device for held in wanted.values() if held.device is not None}):
                if self.device_limit_bytes is None:
                    break
                free = self.device_limit_bytes - sum(held.on_device for held in others if held.device == device)
                need = sum(held.on_device for held in wanted.values() if held.device == device)
                if need > free:
                    return _Short(need - free, free, self.device_limit_bytes, device)
            self._reserved.update(wanted)
            return None

    def _on(self, device: str) -> int:
        return sum(held.on_device for held in self._reserved.values() if held.device == device)

    def _no_room(self, what: str, nbytes: int, short: _Short) -> NoRoom:
        holders = [one for one in self._holders() if short.device is None or short.device in one.devices]
        where, asked = ("", "kv_budget") if short.device is None else (f" on {short.device}", "device_kv_budget")
        held = ", ".join(map(str, holders[:6])) or "nothing yet"
        if short.free + short.missing > short.limit:
            said = f"more than all of its {_mib(short.limit)} MiB, {_mib(short.free)} MiB are free. Held: {held}"
            hint = f"shorten the context, or give Lab({asked}=...) more: no eviction makes that much room"
        else:
            said = (
                f"{_mib(short.free)} of {_mib(short.limit)} MiB are free, and what is held is pinned, leased or in use. "
                f"Held: {held}"
            )
            hint = (
                f"unpin or evict states, run fewer agents at once, shorten the context, or give Lab({asked}=...) more"
            )
        return NoRoom(
            f"{what} needs {_mib(nbytes)} MiB of KV memory{where}; {said}",
            hint=hint,
            need_bytes=nbytes,
            free_bytes=short.free,
            device=short.device,
            held=[(one.name, one.nbytes, one.why) for one in holders],
        )


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f}"
