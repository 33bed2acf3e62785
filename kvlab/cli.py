"""The ``kvlab`` command. It parses, calls and prints; whatever it does can be done from Python.

argparse rather than a framework: it is always there and loads in no time, so ``kvlab --help`` is instant. Everything
else is imported by the command that needs it.

One file a little over the usual length, because it is one table of commands and what each of them calls.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvlab import __version__
from kvlab.config import DEBUG_VARIABLE, is_set, set_up_logging
from kvlab.errors import InvalidInput, KVLabError
from kvlab.store.room import require_writable

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells say it."""

DEFAULT_MODEL = "smollm2"
MODEL_HELP = "embedded name, folder or hub name (default: %(default)s)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 when it did what was asked, 2 for a mistake that a person can mend (one message, no traceback unless
    ``KVLAB_DEBUG`` is set), 130 after Ctrl-C.
    """
    chosen, unknown = _parser().parse_known_args(arguments)
    if unknown:
        chosen.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    set_up_logging()
    _end_orderly()
    try:
        if chosen.command in (_bench_engine, _bench_handoff, _bench_crossover, _bench_eviction, _bench_inspector):
            require_writable(chosen.out, "results", "--out names a folder")
        code = int(chosen.command(chosen) or 0)
        sys.stdout.flush()
    except KVLabError as error:
        _complain(error)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough, as `head` does; Python would complain once more while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _end_orderly() -> None:
    """A closed terminal or a polite kill ends as Ctrl-C does: what was started is stopped and cleaned up."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def _complain(error: KVLabError) -> None:
    if is_set(DEBUG_VARIABLE):
        traceback.print_exception(error)
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    print(f"{red}kvlab: {error.message}{plain}", file=sys.stderr)
    if error.hint:
        print(f"  Try: {error.hint}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvlab", description="A laboratory for the KV cache of language models.")
    parser.add_argument("--version", action="version", version=f"kvlab {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser("demo", help="a review by several agents, with states and with text, and what it cost")
    _add_lab_arguments(demo)
    demo.add_argument("--out", type=Path, metavar="DIR", help="folder for the report (default: the run's own)")
    demo.set_defaults(command=_demo)

    run = commands.add_parser("run", help="run a named workload, or a file that makes a workflow")
    run.add_argument("workload", metavar="NAME|FILE", help="`kvlab workloads` lists names; a file is .py or .yaml")
    _add_lab_arguments(run)
    run.add_argument(
        "--set", action=_Set, default={}, metavar="NAME=VALUE", dest="parameters", help="a parameter of a workload"
    )
    run.add_argument(
        "--kv-budget", metavar="SIZE", help="K/V of all workers together, e.g. '256 MiB' (default: by memory)"
    )
    run.add_argument("--spill", metavar="SIZE", help="what may go to disk, e.g. '4 GiB' (default: as Lab())")
    run.add_argument(
        "--eviction", choices=("workflow", "lru", "arc"), default="workflow", help="who leaves (default: %(default)s)"
    )
    run.add_argument("--flow", choices=("state", "text"), default="state", help="reuse KV states, or prefill all text")
    run.set_defaults(command=_run)

    listed = commands.add_parser("workloads", help="list the named workloads, or print or draw one")
    listed.add_argument(
        "workload", nargs="?", metavar="NAME|FILE", help="print this one as YAML, ready to be changed and run"
    )
    listed.add_argument("--context", type=Path, metavar="FILE", help="text that the agents share (default: a sample)")
    listed.add_argument("--picture", type=Path, metavar="FILE.svg", help="draw it instead")
    listed.add_argument("--model", default=DEFAULT_MODEL, help="whose tokenizer counts (default: %(default)s)")
    listed.add_argument(
        "--set", action=_Set, default={}, metavar="NAME=VALUE", dest="parameters", help="a parameter of the workload"
    )
    listed.set_defaults(command=_workloads)

    inspect = commands.add_parser("inspect", help="describe a recorded run, or show it in a browser")
    inspect.add_argument("run", metavar="RUN", help="folder of the run, or its name")
    inspect.add_argument("--serve", action="store_true", help="serve the inspector on 127.0.0.1 until Ctrl-C")
    inspect.add_argument("--port", type=int, default=0, metavar="N", help="port of --serve (default: a free one)")
    inspect.add_argument("--out", type=Path, metavar="FILE", help="write the inspector to one HTML file")
    inspect.set_defaults(command=_inspect)

    calibrate = commands.add_parser("calibrate", help="measure what prefill, decode and links take on this machine")
    calibrate.add_argument("--model", default=DEFAULT_MODEL, help=MODEL_HELP)
    calibrate.add_argument("--workers", type=_positive, default=2, metavar="N", help="processes (default: %(default)s)")
    calibrate.add_argument(
        "--same-host", choices=("map", "frames"), default="frames", help="how states cross this host"
    )
    calibrate.add_argument("--link-rate", metavar="RATE", help="pace frames to each other worker, e.g. '120 Mbit/s'")
    calibrate.add_argument("--link-latency", metavar="TIME", help="of a paced link, e.g. '2 ms'")
    calibrate.set_defaults(command=_calibrate)

    _add_model_commands(commands)
    _add_runs_commands(commands)
    _add_bench_commands(commands)
    _add_worker_command(commands)
    _name_parsers(parser)
    return parser


def _name_parsers(parser: argparse.ArgumentParser) -> None:
    """Each command knows its own parser, so that a wrong argument shows the usage of that command."""
    parser.set_defaults(parser=parser)
    for action in parser._actions:  # noqa: SLF001 - there is no public way to its commands
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                _name_parsers(command)


def _add_lab_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", default=DEFAULT_MODEL, help="embedded name, folder or hub name (default: %(default)s)"
    )
    parser.add_argument("--workers", type=_positive, default=2, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument("--context", type=Path, metavar="FILE", help="text that the agents share (default: a sample)")


class _Set(argparse.Action):
    """``--set agents=6``, as often as there are parameters; what is no whole number is a text."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        name, _, value = str(values).partition("=")
        if not (name and value):
            parser.error(f"{option_string} {values}: wants NAME=VALUE, such as agents=6")
        try:
            chosen: int | str = int(value)
        except ValueError:
            chosen = value
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), name: chosen})


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _add_model_commands(commands: Any) -> None:
    model = commands.add_parser("model", help="fetch and describe models")
    actions = model.add_subparsers(metavar="ACTION", required=True)
    fetch = actions.add_parser("fetch", help="put a model into the cache")
    fetch.add_argument("name", nargs="?", default=DEFAULT_MODEL, metavar="NAME")
    fetch.set_defaults(command=_model_fetch)
    show = actions.add_parser("show", help="what a model is and takes, without loading it")
    show.add_argument("name", nargs="?", default=DEFAULT_MODEL, metavar="NAME")
    show.set_defaults(command=_model_show)


def _add_runs_commands(commands: Any) -> None:
    runs = commands.add_parser("runs", help="list, measure and remove recorded runs")
    actions = runs.add_subparsers(metavar="ACTION", required=True)
    actions.add_parser("ls", help="one line a run, oldest first").set_defaults(command=_runs_ls)
    actions.add_parser("size", help="bytes on disk of all runs").set_defaults(command=_runs_size)
    remove = actions.add_parser("rm", help="delete runs")
    remove.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, or its name")
    remove.set_defaults(command=_runs_rm)


def _add_bench_commands(commands: Any) -> None:
    bench = commands.add_parser("bench", help="measure on this machine")
    actions = bench.add_subparsers(metavar="WHAT", required=True)
    engine = actions.add_parser("engine", help="the engine against transformers: prefill, decode, siblings")
    engine.add_argument("--out", type=Path, required=True, metavar="DIR")
    engine.add_argument("--model", default=DEFAULT_MODEL, help=MODEL_HELP)
    engine.add_argument(
        "--quick", action="store_true", help="one round instead of three: to see that it works, not to cite"
    )
    engine.set_defaults(command=_bench_engine)
    crossover = actions.add_parser("crossover", help="transfer, recompute and hybrid over slow and fast links")
    crossover.add_argument("--out", type=Path, required=True, metavar="DIR")
    crossover.add_argument("--model", default=DEFAULT_MODEL, help=MODEL_HELP)
    crossover.add_argument("--quick", action="store_true", help="short contexts and three rounds")
    crossover.add_argument("--shaped", action="store_true", help="as root: shape links between network namespaces")
    crossover.set_defaults(command=_bench_crossover)
    eviction = actions.add_parser("eviction", help="eviction policies on workloads under small budgets, or on a trace")
    eviction.add_argument(
        "--trace", type=Path, metavar="FILE", help="replay requests (JSON lines in the Mooncake schema) without a model"
    )
    eviction.add_argument("--out", type=Path, required=True, metavar="DIR")
    eviction.add_argument("--model", default=DEFAULT_MODEL, help=MODEL_HELP)
    eviction.add_argument("--quick", action="store_true", help="two workloads, short and few: to see that it works")
    eviction.set_defaults(command=_bench_eviction)
    handoff = actions.add_parser("handoff", help="a state from worker to worker: mapped, and as frames")
    handoff.add_argument("--out", type=Path, required=True, metavar="DIR")
    handoff.add_argument("--model", default=DEFAULT_MODEL, help=MODEL_HELP)
    handoff.add_argument("--quick", action="store_true", help="three rounds instead of eleven")
    handoff.set_defaults(command=_bench_handoff)
    inspector = actions.add_parser("inspector", help="the inspector in a browser: stepping, following, opening")
    inspector.add_argument("--out", type=Path, required=True, metavar="DIR")
    inspector.add_argument("--quick", action="store_true", help="a small run, each once: to see that it works")
    inspector.set_defaults(command=_bench_inspector)


def _add_worker_command(commands: Any) -> None:
    worker = commands.add_parser("worker", help="join a cluster as a worker with kvlab's settings")
    worker.add_argument("address", metavar="ADDRESS", help="of the scheduler: tcp://host:8786")
    worker.add_argument("--name", help="of this worker")
    worker.add_argument(
        "--model", default=DEFAULT_MODEL, help="embedded name, folder or hub name (default: %(default)s)"
    )
    worker.add_argument("--model-path", metavar="DIR", help="folder of the model on this machine, whatever its name")
    worker.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 … (default: %(default)s)")
    worker.add_argument("--dtype", default="auto", help="float32, bfloat16, float16 (default: fitting the device)")
    worker.add_argument("--same-host", choices=("map", "frames"), default="map", help="how states cross this host")
    worker.add_argument("--link-rate", metavar="RATE", help="pace frames to each other worker, e.g. '120 Mbit/s'")
    worker.add_argument("--link-latency", metavar="TIME", help="of a paced link, e.g. '2 ms'")
    for flag, what in (("ca-file", "authority of a tls:// scheduler"), ("cert", "certificate"), ("key", "its key")):
        worker.add_argument(f"--tls-{flag}", type=Path, metavar="FILE", help=f"{what}, in PEM")
    worker.add_argument("--local-directory", metavar="DIR", help="for what Dask writes to disk")
    worker.add_argument("--watch-stdin", action="store_true", help="end when standard input is closed")
    worker.set_defaults(command=_worker)


def _demo(chosen: argparse.Namespace) -> None:
    from kvlab import progress
    from kvlab.workloads.demo import run_demo

    run_demo(chosen.model, chosen.workers, _require_file(chosen.context), progress.SHOWN, out=chosen.out)


def _run(chosen: argparse.Namespace) -> None:
    from kvlab import progress
    from kvlab.workloads.demo import run_named

    context = _require_file(chosen.context)
    run_named(
        chosen.workload,
        chosen.model,
        chosen.workers,
        context,
        progress.SHOWN,
        flow=chosen.flow,
        parameters=chosen.parameters,
        room={"kv_budget": chosen.kv_budget, "spill_bytes": chosen.spill, "eviction": chosen.eviction},
    )


def _workloads(chosen: argparse.Namespace) -> None:
    from kvlab.workloads import NAMES, parameters_of, told
    from kvlab.workloads.demo import workflow_named

    if chosen.workload is not None and chosen.picture is not None:
        from kvlab.workloads.picture import write_picture

        workflow = workflow_named(chosen.workload, _require_file(chosen.context), chosen.parameters)
        print(write_picture(workflow, chosen.picture, chosen.model))
        return
    if chosen.workload is not None:
        print(workflow_named(chosen.workload, _require_file(chosen.context), chosen.parameters).to_yaml(), end="")
        return
    if chosen.picture or chosen.parameters or chosen.context:
        raise InvalidInput("these options are for one workload", hint="kvlab workloads NAME --picture FILE.svg")
    for name in NAMES:
        settings = "  ".join(f"{parameter}={default}" for parameter, default in parameters_of(name).items())
        print(f"{name:<16}{told(name)}\n{'':<16}{settings}")


def _inspect(chosen: argparse.Namespace) -> None:
    from kvlab.display.describe import describe
    from kvlab.display.views import view
    from kvlab.store.runs import open_run

    run = open_run(chosen.run)
    if chosen.out is not None:
        print(view("export", run, chosen.out))
    if chosen.serve:
        view("page", run, port=chosen.port)
    if chosen.out is None and not chosen.serve:
        print(describe(run))


def _model_fetch(chosen: argparse.Namespace) -> None:
    from kvlab.engine.models import resolve

    print(resolve(chosen.name))


def _model_show(chosen: argparse.Namespace) -> None:
    from kvlab.engine.models import describe, resolve

    print(describe(resolve(chosen.name)))


def _runs_ls(_: argparse.Namespace) -> None:
    from kvlab.display.describe import run_line
    from kvlab.store.runs import list_runs, runs_root

    runs = list_runs()
    for run in runs:
        try:
            print(f"{run.path.name}  {run_line(run)}")
        except KVLabError as error:
            print(f"{run.path.name}  {error.message}")
    if not runs:
        print(f"no runs in {runs_root().resolve()}")


def _runs_size(_: argparse.Namespace) -> None:
    from kvlab.store.runs import list_runs, runs_root

    runs = list_runs()
    print(f"{sum(run.size for run in runs):,} bytes in {len(runs)} runs in {runs_root().resolve()}")


def _runs_rm(chosen: argparse.Namespace) -> None:
    from kvlab.store.runs import remove_run, runs_root

    folders = [Path(name) if Path(name).exists() else runs_root() / name for name in chosen.runs]
    for folder in folders:
        # Before anything is deleted: one wrong name removes nothing.
        if not folder.is_dir():
            raise InvalidInput(f"there is no run {folder.name}", hint="kvlab runs ls shows them")
    for folder in folders:
        print(f"removed {folder}: {remove_run(folder):,} bytes")


def _bench_engine(chosen: argparse.Namespace) -> None:
    from kvlab import progress
    from kvlab.bench.engine import run
    from kvlab.engine.models import resolve

    run(chosen.out, resolve(chosen.model), quick=chosen.quick, progress=progress.say)
    print(chosen.out / "summary.json")


def _bench_crossover(chosen: argparse.Namespace) -> None:
    from kvlab import progress
    from kvlab.bench.crossover import run

    run(chosen.out, chosen.model, quick=chosen.quick, shape=chosen.shaped, say=progress.say)
    print(chosen.out / "summary.json")


def _bench_eviction(chosen: argparse.Namespace) -> None:
    from kvlab import progress
    from kvlab.bench import eviction, pressure

    if chosen.trace is not None:
        eviction.run(chosen.out, chosen.trace, say=progress.say)
    else:
        pressure.run(chosen.out, chosen.model, quick=chosen.quick, say=progress.say)
    print(chosen.out / "summary.json")


def _calibrate(chosen: argparse.Namespace) -> None:
    from rich.console import Console

    from kvlab.display.calibration import calibration_tables
    from kvlab.runtime.lab import Lab

    with Lab(
        model=chosen.model,
        workers=chosen.workers,
        same_host=chosen.same_host,
        link_rate=chosen.link_rate,
        link_latency=chosen.link_latency,
        calibrate=True,
    ) as lab:
        pace = str(lab.core.pace) if lab.core.pace is not None else ""
        Console().print(calibration_tables(lab.core.cost, lab.card.name, lab.core.config.bytes_per_token, pace))


def _bench_handoff(chosen: argparse.Namespace) -> None:
    from kvlab.bench.handoff import run

    run(chosen.out, chosen.model, quick=chosen.quick)
    print(chosen.out / "summary.json")


def _bench_inspector(chosen: argparse.Namespace) -> None:
    from kvlab.display.views import view

    view("bench", chosen.out, quick=chosen.quick)
    print(chosen.out / "summary.json")


def _worker(chosen: argparse.Namespace) -> int:
    from kvlab.engine.models import resolve
    from kvlab.runtime.certificates import Certificates
    from kvlab.runtime.engines import ModelSpec
    from kvlab.runtime.worker_process import main as serve
    from kvlab.transport.link_pace import parse_pace

    pace = parse_pace(chosen.link_rate, chosen.link_latency)
    if pace is not None and chosen.same_host != "frames":
        raise InvalidInput("--link-rate paces frames, and this worker maps", hint="add --same-host frames")
    tls = (chosen.tls_ca_file, chosen.tls_cert, chosen.tls_key)
    if any(tls) and not all(tls):
        raise InvalidInput("TLS needs three files", hint="--tls-ca-file, --tls-cert and --tls-key go together")
    folder = chosen.model_path or str(resolve(chosen.model))
    model = ModelSpec(chosen.model, folder, chosen.device, chosen.dtype)
    return serve(
        chosen.address,
        model,
        name=chosen.name,
        same_host=chosen.same_host,
        pace=pace,
        local_directory=chosen.local_directory,
        watch_stdin=chosen.watch_stdin,
        certificates=Certificates(*tls) if all(tls) else None,
    )


def _require_file(path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise InvalidInput(f"there is no file {path}", hint="--context wants a text file")
    return path
