"""Flower's programs as processes of ours: started with their logs, watched, and stopped with all that they started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from majorant._extras import require

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds, in place of one: every letter waits for it on both sides
}
PATIENCE = 10.0  # seconds in which a process ends when it is asked to


def program(name: str) -> str:
    """The path of one of Flower's programs: those of this Python first."""
    require("flwr", "flower", "a federation on Flower")
    own = Path(sys.executable).parent / name
    found = str(own) if own.exists() else shutil.which(name)
    if found is None:
        raise ValueError(f"there is no program {name}: install Flower, as in pip install 'majorant[flower]'")
    return found


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's programs, with a home of its own: the user's settings are left alone."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": path}


def free_port(wanted: int | None = None) -> int:
    """A port of this machine that nobody listens on: the one that is wanted, or any."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted or 0))
        except OSError:
            raise ValueError(f"port {wanted} is in use: choose another --port, or leave it out") from None
        return int(probe.getsockname()[1])


class Processes:
    """Processes by name; leaving the ``with`` block stops all of them, whatever happened."""

    def __init__(self, logs: Path, home: Path) -> None:
        self.logs, self.home = logs, home
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(parents=True, exist_ok=True)
        home.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Processes:
        self.before = heed_hang_up()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self.before is not None:
            signal.signal(signal.SIGHUP, self.before)

    def start(self, name: str, command: Sequence[str]) -> None:
        """Starts a program in a group of its own, so that an interruption of ours reaches it by us alone."""
        log = (self.logs / f"{name}.log").open("ab")
        with log:
            self.running[name] = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(self.home),
                start_new_session=True,
            )

    def call(self, *command: str) -> str:
        """Runs a program to its end: what it said."""
        done = subprocess.run(
            list(command), stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment(self.home)
        )
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise ValueError(f"{Path(command[0]).name} failed: {said[-1] if said else done.returncode}")
        return done.stdout

    def wait_for_port(self, name: str, port: int, seconds: float = 120.0) -> None:
        """Waits until a program listens on a port."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            self.check(name)
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
                return
            time.sleep(0.2)
        raise ValueError(f"{name} did not start within {seconds:g} s: look at {self.logs / f'{name}.log'}")

    def check(self, *names: str) -> None:
        """Complains about a process that has ended."""
        for name in names or tuple(self.running):
            code = self.running[name].poll()
            if code is not None:
                log = self.logs / f"{name}.log"
                last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
                raise ValueError(f"{name} has ended ({code}): {''.join(last)[:300]}. Its log is {log}")

    def stop(self) -> None:
        """Asks all to end, the last one first, and then makes them; at once where somebody does not want to wait."""
        deadline = time.monotonic() + PATIENCE
        try:
            for process in reversed(self.running.values()):
                signal_group(process, signal.SIGTERM)
            for process in self.running.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(deadline - time.monotonic(), 0.1))
        finally:
            for process in self.running.values():  # what they started may be deep in a computation, and deaf
                signal_group(process, signal.SIGKILL)
                process.wait()
            self.running.clear()


def heed_hang_up() -> Any:
    """Makes a terminal that is closed an interruption; what was to be done before, or None where it stays at that."""
    ours = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGHUP")
    if not ours or signal.getsignal(signal.SIGHUP) != signal.SIG_DFL:  # as under nohup
        return None

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    return signal.signal(signal.SIGHUP, interrupt)


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Sends a signal to a process and those of its group, which may outlive it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
