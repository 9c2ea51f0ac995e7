"""Runs a command that dies with its parent: `python guard.py PARENT_PID COMMAND ARGS…`.

A program of its own, run with `-I -S`, because a `preexec_fn` is not safe in a process with threads and this starts in
milliseconds. It imports nothing of FetchBox.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Asks the kernel for a signal at the parent's death, then becomes the command."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it died before the request was made
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606  # the point of this program


if __name__ == "__main__":
    main()
