"""Who may talk to a cluster: temporary certificates for a lab's own, Dask's ``Security`` for somebody else's.

With TLS both ends show a certificate, so it says who may take part, not only that nobody else can read. Dask carries
pickled functions: whoever may connect to a scheduler or worker can run what they like there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kvlab.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from distributed.security import Security

LOOPBACK = ("127.0.0.1", "localhost", "::1")
EXAMPLE = 'Security(tls_ca_file="ca.pem", tls_client_cert="cert.pem", tls_client_key="key.pem")'


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: the authority that both ends must be signed by, and this end's certificate and key."""

    ca: Path
    cert: Path
    key: Path

    @property
    def flags(self) -> list[str]:
        """For the command line of `kvlab worker`, which anybody may read: it names files."""
        return [f"--tls-ca-file={self.ca}", f"--tls-cert={self.cert}", f"--tls-key={self.key}"]

    def security(self) -> Security:
        """As Dask wants it, for a scheduler, a client or a worker.

        Raises
        ------
        InvalidInput
            If one of the files is not there or holds no such thing.
        """
        from distributed.security import Security

        for file in (self.ca, self.cert, self.key):
            if not file.is_file():
                raise InvalidInput(f"there is no file {file}", hint="certificate, key and authority are files in PEM")
        ca, cert, key = str(self.ca), str(self.cert), str(self.key)
        found = Security(
            require_encryption=True,
            tls_ca_file=ca,
            tls_client_cert=cert, tls_client_key=key,
            tls_scheduler_cert=cert, tls_scheduler_key=key,
            tls_worker_cert=cert, tls_worker_key=key,
        )  # fmt: skip
        try:
            found.get_connection_args("worker")
        except OSError as error:  # an SSLError is one
            raise InvalidInput(
                f"{cert} and {key} under {ca} make no TLS: {error}",
                hint="give a certificate, its own key, and its authority",
            ) from error
        return found


def temporary(folder: Path) -> Certificates:
    """Certificates that only this process and those it starts can have, as files of their owner in ``folder`` (made, 0700).

    Changes nothing else: they end with the folder. The key is made once a process, since that can take 100 ms.
    """
    folder.mkdir(mode=0o700)
    cert, key = _made()
    found = Certificates(folder / "cert.pem", folder / "cert.pem", folder / "key.pem")
    for file, text in ((found.cert, cert), (found.key, key)):
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as sink:
            sink.write(text)
    return found


@cache
def _made() -> tuple[str, str]:
    from distributed.security import Security

    try:
        made = Security.temporary()
    except ImportError as error:
        raise MissingExtra(
            "temporary certificates need the package cryptography",
            hint="pip install cryptography, or Lab(security=False) where nobody else can reach this machine's loopback",
        ) from error
    return str(made.tls_ca_file), str(made.tls_worker_key)


def for_scheduler(address: str, *, security: bool | Security) -> Security | None:
    """How to talk to somebody's scheduler; None without TLS.

    Without a ``Security`` of its own, ``tls://`` takes what Dask's configuration says (``distributed.comm.tls``).

    Raises
    ------
    InvalidInput
        If address and security contradict each other, or nothing says which certificates to show.
    """
    encrypted = urlsplit(address).scheme == "tls"
    if isinstance(security, bool):
        return configured(address, "client", f"Lab({address!r}, security={EXAMPLE})") if encrypted else None
    if not encrypted:
        raise InvalidInput(
            f"{address} is not encrypted, and security= asks for TLS", hint="the address of such a scheduler is tls://…"
        )
    return security


def in_the_open(address: str) -> bool:
    """Whether what is said to ``address`` leaves this machine, and is not encrypted."""
    parts = urlsplit(address)
    return parts.scheme == "tcp" and parts.hostname not in LOOPBACK


def configured(address: str, role: str, hint: str) -> Security:
    """What Dask's configuration says for ``role`` (client or worker) towards a ``tls://`` address; raises if nothing."""
    from distributed.security import Security

    found = Security()
    told = found.get_tls_config_for_role(role)
    if not (told["ca_file"] and told["cert"]):
        raise InvalidInput(f"{address} speaks TLS, and no certificate is given", hint=hint)
    return found


def check(security: Any, address: str | None) -> None:
    """Raise for a ``security=`` that a lab cannot have."""
    if isinstance(security, bool):
        if address is not None and not security and urlsplit(address).scheme == "tls":
            raise InvalidInput(
                f"{address} speaks TLS: security=False cannot turn it off", hint="leave out security=False"
            )
        return
    from distributed.security import Security

    if not isinstance(security, Security):
        raise InvalidInput(f"security={security!r}", hint=f"True, False, or with a scheduler's address {EXAMPLE}")
    if address is None:
        raise InvalidInput(
            "a Security is for a scheduler somewhere else: workers of this lab's own have certificates of their own",
            hint="leave out security=, or give the scheduler's address",
        )
