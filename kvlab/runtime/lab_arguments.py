"""What a lab may be asked for: its arguments, checked before anything is started."""

from __future__ import annotations

import importlib.util

from kvlab.errors import InvalidInput, MissingExtra
from kvlab.state.identity import DTYPE_BYTES
from kvlab.transport.link_pace import LinkPace, parse_pace
from kvlab.workflow.checks import is_encodable


def check(workers: int, same_host: str, prefill_chunk: int, dtype: str, namespace: str) -> None:
    """Raise for what no lab can be."""
    if not isinstance(namespace, str) or "/" in namespace or not is_encodable(namespace):
        raise InvalidInput(
            f"namespace={namespace!r}",
            hint="a text without '/', which begins the namespaces that runs have of their own",
        )
    if type(workers) is not int or workers < 1:
        raise InvalidInput(f"workers={workers!r}: a lab needs at least one worker", hint="Lab(workers=2)")
    if same_host not in ("map", "frames"):
        raise InvalidInput(f"same_host={same_host!r}", hint='same_host="map" or same_host="frames"')
    if dtype not in ("auto", *DTYPE_BYTES):
        raise InvalidInput(f"dtype={dtype!r}", hint=f"one of: auto, {', '.join(DTYPE_BYTES)}")
    if type(prefill_chunk) is not int or prefill_chunk < 1:
        raise InvalidInput(
            f"prefill_chunk={prefill_chunk!r}", hint="a whole number of tokens, at least 1; 1024 costs nothing"
        )


def pace_of(
    link_rate: str | float | None,
    link_latency: str | float | None,
    address: str | None,
    same_host: str,
    *,
    processes: bool,
) -> LinkPace | None:
    """The pace of a lab's links, None where they are not paced; raises where pacing does not go with the rest."""
    pace = parse_pace(link_rate, link_latency)
    if pace is None:
        return None
    if address is not None:
        raise InvalidInput(
            f"link_rate={link_rate!r} with the workers of {address}: a lab paces only workers that it starts",
            hint="leave out the address, or the link_rate",
        )
    if not processes:
        raise InvalidInput(
            f"link_rate={link_rate!r} with processes=False: workers in one process send each other nothing",
            hint="leave out processes=False",
        )
    if same_host != "frames":
        raise InvalidInput(
            f"link_rate={link_rate!r} with same_host={same_host!r}: a state that is mapped crosses no link",
            hint=f'Lab(same_host="frames", link_rate={link_rate!r})',
        )
    return pace


def check_protocol(protocol: str, same_host: str, *, own: bool, encrypted: bool) -> None:
    """Raise for a protocol that is not there, or does not go with the rest."""
    if protocol == "tcp":
        return
    if protocol != "ucxx":
        raise InvalidInput(f"protocol={protocol!r}", hint='protocol="tcp" or protocol="ucxx"')
    if importlib.util.find_spec("distributed_ucxx") is None:
        raise MissingExtra('protocol="ucxx" needs UCX', hint="pip install 'kvlab[ucx]'")
    if same_host != "frames":
        raise InvalidInput(
            f'protocol="ucxx" with same_host={same_host!r}: UCX tells no sender where its receiver is, so nothing is mapped',
            hint='Lab(protocol="ucxx", same_host="frames")',
        )
    if not own:
        raise InvalidInput(
            'protocol="ucxx" is for workers that the lab starts', hint="a scheduler's address names its protocol itself"
        )
    if encrypted:
        raise InvalidInput(
            'protocol="ucxx" cannot be encrypted: UCX has no TLS',
            hint='Lab(protocol="ucxx", same_host="frames", security=False)',
        )
