"""A proxy before a server that lets requests through and loses the first answers, as a network does."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

_HEADERS = 1
_FRAME_HEAD = 9
_CHUNK = 1 << 16


def http_answer(sent: bytes) -> bool:
    """Whether an HTTP/1.1 server has begun to answer."""
    return bool(sent)


def grpc_answer(sent: bytes) -> bool:
    """Whether a gRPC server has begun to answer: a frame HEADERS follows those that open the connection."""
    while len(sent) >= _FRAME_HEAD:
        length, kind = int.from_bytes(sent[:3]), sent[3]
        if kind == _HEADERS:
            return True
        sent = sent[_FRAME_HEAD + length :]
    return False


class Cutting:
    """Passes everything on, but cuts the first `losses` connections where their answer would begin."""

    def __init__(self, target: str, is_answer: Callable[[bytes], bool], losses: int = 1) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._is_answer = is_answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.losses = losses
        self.addr = f"127.0.0.1:{self._server.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._open += [near, far]
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()
            threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(_CHUNK):
                sink.sendall(data)
        except OSError:
            pass
        self._end(source, sink)

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        sent = b""
        try:
            while data := far.recv(_CHUNK):
                sent += data
                if self.losses and self._is_answer(sent):
                    self.losses -= 1
                    break
                near.sendall(data)
        except OSError:
            pass
        self._end(far, near)

    @staticmethod
    def _end(*ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):  # its other thread was here first
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end(self._server, *self._open)
        for one in (self._server, *self._open):
            one.close()
