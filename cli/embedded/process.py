"""One child process: started until ready, stopped gently and then hard, restarted on the same data and port."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

GUARD = Path(__file__).resolve().with_name("guard.py")
_POLL_SECONDS = 0.02
_LOG_TAIL_BYTES = 2_000
_PATIENCE = 10
"""How many times `start_timeout` one may take that makes progress."""


class StartError(Exception):
    """A child ended or stayed silent instead of becoming ready. The message ends with the last lines of its log."""


class LocalProcess:
    """A process that dies with its parent (on Linux), writes to a log file and can be asked whether it is ready.

    Start it from a thread that lives as long as it should: Linux ties the death signal to the starting thread.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        ready: Callable[[], bool],
        *,
        start_timeout: float = 30.0,
        environ: dict[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        """`ready` is polled after the start and must not raise.

        `start_timeout` is how many seconds it may stand still before it is ready: while it writes to its log or uses
        the CPU it is only slow, and has ten times as long.

        Environment and working directory are those of this process unless given.
        """
        self.name = name
        self.argv = list(argv)
        self.log = log
        self._ready = ready
        self._start_timeout = start_timeout
        self._environ = environ
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """The process id; 0 while it does not run."""
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code once it has ended; negative for a signal."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Starts the process and waits until it is ready. Raises StartError, and leaves nothing running then."""
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.kill9()
            raise

    def launch(self) -> None:
        """Starts the process without waiting, in a session of its own: Ctrl-C reaches the parent alone."""
        if self.running:
            return
        command = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), *self.argv]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(  # noqa: S603  # our own arguments
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environ,
                cwd=self._directory,
            )

    def wait_ready(self) -> None:
        """Waits for `ready` as long as the process makes progress. Raises StartError."""
        last = time.monotonic() + self._start_timeout * _PATIENCE
        deadline, seen = 0.0, (-1, -1)
        while not self._ready():
            if not self.running:
                raise StartError(f"{self.name} ended with code {self.exit_code} at start: {self.log_tail()}")
            now, progress = time.monotonic(), self._progress()
            if progress != seen:
                deadline, seen = min(now + self._start_timeout, last), progress
            if now > deadline:
                raise StartError(f"{self.name} {self._patience()}: {self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def _patience(self) -> str:
        most = self._start_timeout * _PATIENCE
        return f"made no progress for {self._start_timeout:g} s, or was not ready within {most:g} s"

    def _progress(self) -> tuple[int, int]:
        """What grows while it works: its log, and the time that it has used of the CPU."""
        try:
            size = self.log.stat().st_size
        except OSError:
            size = 0
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return size, int(fields[11]) + int(fields[12])
        except (OSError, IndexError, ValueError):  # another system, or it has ended
            return size, 0

    def terminate(self) -> None:
        """Asks the process to end (SIGTERM) without waiting."""
        self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; nothing happens when the process has ended."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def stop(self, grace: float = 10.0) -> int | None:
        """SIGTERM, then SIGKILL after `grace` seconds. Safe to repeat. Returns the exit code."""
        if self._process is None:
            return None
        self.terminate()
        try:
            return self._process.wait(grace)
        except subprocess.TimeoutExpired:
            return self.kill9()

    def kill9(self) -> int | None:
        """Kills the process as a power cut would."""
        if self._process is None:
            return None
        self.signal(signal.SIGKILL)
        return self._process.wait()

    def restart(self) -> None:
        """Stops what still runs and starts anew with the same arguments."""
        self.stop()
        self.start()

    def log_tail(self) -> str:
        """The last lines that the running or last process wrote to its log; for error messages."""
        try:
            data = self.log.read_bytes()[self._log_start :]
        except OSError:
            return f"(no log at {self.log})"
        return data[-_LOG_TAIL_BYTES:].decode(errors="replace").strip() or f"(empty log at {self.log})"
