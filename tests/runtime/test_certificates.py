"""TLS: what makes it, what cannot, and that nobody without the lab's certificate gets in."""

from __future__ import annotations

import io
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from distributed.comm.core import connect
from distributed.comm.tcp import TCP, TLS
from distributed.security import Security

from kvlab.cli import main
from kvlab.errors import InvalidInput
from kvlab.progress import Progress
from kvlab.runtime import certificates, worker_process
from kvlab.runtime.certificates import Certificates, for_scheduler, in_the_open, temporary
from kvlab.runtime.engines import ModelSpec

TEXT = "Keys and values of a prefix are the same for every question that follows it. "


def test_certificates_are_files_of_their_owner_and_their_key_is_made_once(tmp_path: Path) -> None:
    first, second = temporary(tmp_path / "a"), temporary(tmp_path / "b")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "a").iterdir()} == {0o600}
    assert first.key.read_text() == second.key.read_text()
    assert first.security().require_encryption
    with pytest.raises(FileExistsError):
        temporary(tmp_path / "a")  # nobody can have put a folder there before


def test_a_command_line_names_files_and_no_secret(tmp_path: Path) -> None:
    from kvlab.cli import _parser

    made = temporary(tmp_path / "tls")
    spec = ModelSpec("m", "/m", "cpu", "auto")
    line = worker_process.command("tls://here:1", spec, "w", "frames", None, tmp_path, made)
    assert not any("PRIVATE KEY" in part for part in line)
    chosen = _parser().parse_args(line[3:])
    assert Certificates(chosen.tls_ca_file, chosen.tls_cert, chosen.tls_key) == made


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of somebody else, made as a lab makes its own, in another process as it were."""
    certificates._made.cache_clear()
    folder = tmp_path_factory.mktemp("others")
    made = temporary(folder / "tls")
    certificates._made.cache_clear()
    return made


def test_what_makes_no_tls_is_named(tmp_path: Path, others: Certificates) -> None:
    own = temporary(tmp_path / "tls")
    with pytest.raises(InvalidInput, match="no file /nowhere"):
        Certificates(own.ca, own.cert, Path("/nowhere")).security()
    with pytest.raises(InvalidInput, match="make no TLS"):
        Certificates(own.ca, own.cert, others.key).security()
    (tmp_path / "text").write_text("nothing of the kind")
    with pytest.raises(InvalidInput, match="make no TLS"):
        Certificates(tmp_path / "text", own.cert, own.key).security()


@pytest.mark.parametrize(
    ("keywords", "said", "hint"),
    [
        ({"security": "yes"}, "security='yes'", "tls_ca_file"),
        ({"security": Security()}, "a Security is for a scheduler somewhere else", "leave out security="),
        ({"security": False, "address": "tls://127.0.0.1:9"}, "security=False cannot turn it off", "leave out"),
        ({"address": "tls://127.0.0.1:9"}, "no certificate is given", "Security(tls_ca_file="),
        ({"security": Security(require_encryption=True), "address": "tcp://127.0.0.1:9"}, "not encrypted", "tls://"),
    ],
)
def test_what_contradicts_itself_is_refused(
    make_lab: Callable[..., Any], keywords: dict[str, Any], said: str, hint: str
) -> None:
    with pytest.raises(InvalidInput, match=said.replace("(", r"\(")) as caught:
        make_lab(**keywords)
    assert hint in caught.value.hint


def test_dasks_own_configuration_is_taken_where_nothing_else_is_said(tmp_path: Path) -> None:
    import dask

    made = temporary(tmp_path / "tls")
    told = {"ca-file": str(made.ca), "client.cert": str(made.cert), "client.key": str(made.key)}
    with dask.config.set({f"distributed.comm.tls.{name}": value for name, value in told.items()}):
        found = for_scheduler("tls://far:1", security=True)
    assert found is not None
    assert found.tls_client_cert == str(made.cert)
    assert for_scheduler("tcp://far:1", security=True) is None


def test_what_is_said_in_the_open_is_known() -> None:
    assert [in_the_open(f"{scheme}://{host}:1") for scheme in ("tcp", "tls") for host in ("far", "127.0.0.1", "[::1]")] == [
        True, False, False, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["tls://127.0.0.1:9"], "no certificate is given"),
        (["tls://127.0.0.1:9", "--tls-cert", "c.pem"], "three files"),
        (["tcp://127.0.0.1:9", "--tls-ca-file=a", "--tls-cert=c", "--tls-key=k"], "not encrypted"),
        (["tls://127.0.0.1:9", "--tls-ca-file=/no/a", "--tls-cert=c", "--tls-key=k"], "no file /no/a"),
    ],
)
def test_a_worker_says_what_is_wrong_with_its_certificates(
    flags: list[str], said: str, tiny_model_dir: str, capsys: Any
) -> None:
    assert main(["worker", *flags, "--model-path", tiny_model_dir]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Try:" in told


def test_a_labs_own_servers_speak_tls_and_nothing_else(lab: Any) -> None:
    told = lab.core.client.scheduler_info(n_workers=-1)["workers"]
    assert {urlsplit(address).scheme for address in (lab.core.client.scheduler.address, *told)} == {"tls"}

    def between(dask_worker: Any) -> set[tuple[str, str]]:
        comm = dask_worker.batched_stream.comm
        return {(type(comm).__name__, comm.extra_info["cipher"][1])}

    assert set().union(*lab.core.client.run(between).values()) == {("TLS", "TLSv1.3")}
    assert stat.S_IMODE((lab._scratch / "tls").stat().st_mode) == 0o700


def test_nobody_without_the_labs_certificate_gets_in(lab: Any, others: Certificates) -> None:
    """Neither to the scheduler nor to a worker: with none, with another, or without TLS."""
    own = lab._cluster._certificates.security()
    for address in (lab.core.client.scheduler.address, lab.workers["worker-0"].address):

        async def enters(address: str, **arguments: Any) -> bool:
            comm = await connect(address, timeout=1, **arguments)
            await comm.write({"op": "identity", "reply": True})
            answer = await comm.read()
            comm.abort()
            return "id" in answer

        assert lab.core.client.sync(enters, address, **own.get_connection_args("client"))
        for arguments in (others.security().get_connection_args("client"), {"ssl_context": _bare_context()}):
            with pytest.raises(OSError):  # noqa: PT011 - how Dask says it differs
                lab.core.client.sync(enters, address, **arguments)
        with pytest.raises(OSError):  # noqa: PT011 - as above
            lab.core.client.sync(enters, address.replace("tls://", "tcp://"))


def _bare_context() -> Any:
    """Somebody who checks nothing and shows nothing."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_what_anybody_here_can_ask_over_http_is_whether_it_lives(lab: Any) -> None:
    import urllib.error
    import urllib.request

    ports = lab.core.client.run(lambda dask_worker: dask_worker.http_server.port)
    ports["scheduler"] = lab._cluster._scheduler.scheduler.http_server.port
    for port in ports.values():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as told:
            assert told.read() == b"ok"
        for path in ("info/main/workers.html", "info/logs.html", "json/counts.json", "metrics", "proxy/1/127.0.0.1/x"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10)


@pytest.mark.slow
def test_without_tls_it_is_said_once(make_lab: Callable[..., Any]) -> None:
    shown = io.StringIO()
    with make_lab(security=False, workers=1, kv_budget="1 GiB", progress=Progress("lines", shown)) as plain:
        assert urlsplit(plain.core.client.scheduler.address).scheme == "tcp"
        assert plain._record_document(())["lab"]["wire"] == "tcp"
        assert not (plain._scratch / "tls").exists()
        plain.materialize(TEXT)
    assert shown.getvalue().count("Not encrypted") == 1


def test_a_frame_is_as_long_as_the_wire_can_take() -> None:
    from kvlab.runtime import dask_settings

    dask_settings.apply()
    assert TCP.max_shard_size == 1 << 40
    assert TLS.max_shard_size == (1 << 31) - 1
