"""triomq run MODULE:NAME: runs an application until Ctrl-C or SIGTERM, which end it as leaving `async with app` does:
messages in hand are finished, and the offsets stored. A second one ends the process at once. With --workers it is this
process that runs several such commands (workers.py)."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec.yaml
import trio

from triomq import __version__
from triomq.client.app import reload, workers
from triomq.client.app.application import TrioMQ
from triomq.client.app.workers import INTERRUPTED, MAX_WORKERS, SIGNALS
from triomq.client.core.errors import ConfigurationError, MQClientError

log = logging.getLogger("triomq.app")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="triomq", description="Run applications of triomq.TrioMQ.")
    made.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = made.add_subparsers()
    commands.add_parser("dev", add_help=False, help="serve NameServer, broker and dashboard for development")
    run = commands.add_parser("run", help="run one until Ctrl-C or SIGTERM")
    describe = commands.add_parser("asyncapi", help="print the AsyncAPI document of one, which connects to nothing")
    describe.add_argument("--yaml", action="store_true", help="as YAML, not as JSON")
    describe.add_argument("--app-version", default="0.0.0", help="the version of the application (default: 0.0.0)")
    for each in (run, describe):
        each.add_argument("application", metavar="MODULE:NAME", help="a module, and the name of its TrioMQ object")
        each.add_argument("--directory", default=".", help="where to search for modules and changes (default: here)")
    run.add_argument("--reload", action="store_true", help="start again after each change of a Python file")
    run.add_argument("--workers", type=_count, metavar="N", help="run it in N processes, which share the queues")
    run.add_argument("--worker", type=int, help=argparse.SUPPRESS)  # the number of one of these
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["dev"]:
        # Of the broker's package, which clients do not import.
        os.execv(sys.executable, [sys.executable, "-m", "triomq.broker.lifecycle.dev", *words[1:]])
    made = parser()
    options = made.parse_args(words)
    if not hasattr(options, "application"):
        made.error("give dev, run or asyncapi; triomq --help says what they do")
    directory = Path(options.directory).resolve()
    if hasattr(options, "app_version"):
        return _describe(options.application, directory, options.app_version, as_yaml=options.yaml)
    words = [sys.executable, "-m", "triomq.client.app.run", "run", options.application, "--directory", str(directory)]
    if options.reload and options.workers:
        made.error("--reload is for development, where one process runs: leave out --reload, or --workers")
    if options.reload:
        return reload.run_until_stopped(words, directory)
    name = "%(name)s" if options.worker is None else f"worker {options.worker} %(name)s"
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s {name} %(message)s")
    if options.workers:
        return workers.run_workers([*words, "--worker"], options.workers)
    return _run_here(options.application, directory, options.worker)


def _count(text: str) -> int:
    """Return a number of workers. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_WORKERS}")
    return int(text)


def _run_here(name: str, directory: Path, worker: int | None) -> int:
    """Run an application in this process, which is the worker of this number, if any. Return the exit code."""
    try:
        parent = workers.Parent() if worker is not None else None
        app = find(name, directory)
        if worker is not None:
            app._be_worker(worker)
        if app.backend == "trio":
            trio.run(_run_in_trio, app, parent)
        else:
            asyncio.run(_run_in_asyncio(app, parent))
    except MQClientError as error:
        print(f"triomq: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _describe(name: str, directory: Path, version: str, *, as_yaml: bool) -> int:
    """Print the AsyncAPI document of an application. Return the exit code."""
    try:
        made = find(name, directory).asyncapi(version)
    except MQClientError as error:
        print(f"triomq: {error}", file=sys.stderr)  # noqa: T201
        return 1
    if as_yaml:
        text = msgspec.yaml.encode(made).decode()
    else:
        text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
    print(text, end="")  # noqa: T201
    return 0


def find(name: str, directory: Path) -> TrioMQ[Any, Any]:
    """Import the application "module:name". Raises ConfigurationError for a name that leads to none; an error inside
    the module stays as it is."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute.isidentifier():
        raise ConfigurationError(f"{name!r} is not MODULE:NAME; for `app = TrioMQ(...)` in shop.py write shop:app")
    sys.path.insert(0, str(directory))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(f"no module {error.name!r} is in {directory}: give its --directory") from None
    found = getattr(module, attribute, None)
    if not isinstance(found, TrioMQ):
        names = ", ".join(key for key, value in vars(module).items() if isinstance(value, TrioMQ))
        hint = f"it has {names}" if names else f'add `{attribute} = TrioMQ("name", name_server=...)` to it'
        raise ConfigurationError(f"{attribute!r} of the module {module_name!r} is no TrioMQ application: {hint}")
    return found


async def _run_in_asyncio(app: TrioMQ[Any, Any], parent: workers.Parent | None) -> None:
    stop = asyncio.Event()
    await _run(app, stop, partial(asyncio.get_running_loop().call_soon_threadsafe, stop.set), parent)


async def _run_in_trio(app: TrioMQ[Any, Any], parent: workers.Parent | None) -> None:
    stop = trio.Event()
    await _run(app, stop, partial(trio.lowlevel.current_trio_token().run_sync_soon, stop.set), parent)


async def _run(
    app: TrioMQ[Any, Any],
    stop: asyncio.Event | trio.Event,
    set_stop: Callable[[], object],
    parent: workers.Parent | None,
) -> None:
    """Run it until `stop`, which signal handlers and threads set with `set_stop`."""
    _on_signals(set_stop)
    if parent is not None:
        parent.when_it_stops(set_stop)
    async with app:
        log.info("%s started", app.name)
        if parent is not None:
            parent.say_opened()
        await stop.wait()
        log.info("%s shutdown begun; another Ctrl-C or SIGTERM ends it at once", app.name)


def _on_signals(stop: Callable[[], object]) -> None:
    """Have the first signal stop the application, and the next one end the process, whatever the event loop does."""

    def first(number: int, frame: object) -> None:
        for each in SIGNALS:
            signal.signal(each, _end_at_once)
        with suppress(RuntimeError):  # of a loop that has ended
            stop()

    for each in SIGNALS:
        signal.signal(each, first)


def _end_at_once(number: int, frame: object) -> None:
    with suppress(OSError):
        os.write(2, b"triomq: ended at once; the messages in hand will be delivered again\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
