"""Makes calls and reads streams, and blocks meanwhile."""

import time
from collections.abc import Generator
from typing import Any

import grpc

from fetchbox_client.calls import A, Call, Method, R, Stream, encode
from fetchbox_client.errors import FetchboxError, from_rpc
from fetchbox_client.options import Options
from fetchbox_client.resume import Reading
from fetchbox_client.retry import Attempts, Patience


class Transport:
    """The channels of one client."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._channel = self._connected(options.target)
        shared = options.operator == options.target
        self._operator = self._channel if shared else self._connected(options.operator)

    def unary(self, call: Call[A]) -> A:
        """The answer of a call."""
        options = self._options
        attempts = Attempts(options.retry, options.timeout, repeatable=call.repeatable, key=call.key)
        method = self._channel_of(call.method).unary_unary(
            call.method.path, request_serializer=encode, response_deserializer=call.method.decode
        )
        while True:
            try:
                return method(call.request, timeout=attempts.timeout(), metadata=options.metadata)
            except grpc.RpcError as error:
                time.sleep(attempts.failed(error_of(error)))

    def stream(self, stream: Stream[A, R], cursor: str, timeout: float | None) -> Generator[R, None, None]:
        """The messages of a stream behind `cursor`, over as many connections as it takes."""
        options = self._options
        patience = Patience(options.retry, timeout)
        reading = Reading(stream, patience, cursor)
        method = self._channel_of(stream.method).unary_stream(
            stream.method.path, request_serializer=encode, response_deserializer=stream.method.decode
        )
        while True:
            messages = method(reading.request(), timeout=patience.slice(), metadata=options.metadata)
            try:
                yield from map(stream.read, filter(reading.takes, messages))
                if reading.ended():
                    return
                reading.looked(self.unary(stream.record))
            except (grpc.RpcError, FetchboxError) as error:
                pause = reading.lost(error_of(error))
                if pause is None:
                    return
                time.sleep(pause)
            finally:
                messages.cancel()

    def close(self) -> None:
        """Ends every call."""
        self._channel.close()
        self._operator.close()

    def _channel_of(self, method: Method[Any]) -> grpc.Channel:
        return self._operator if method.is_operators else self._channel

    def _connected(self, target: str) -> grpc.Channel:
        arguments = self._options.arguments(target)
        if self._options.tls is None:
            return grpc.insecure_channel(target, arguments)
        return grpc.secure_channel(target, self._options.tls.credentials(), arguments)


def error_of(error: Any) -> FetchboxError:
    """The error of a call, sync or async: both have the status; one of ours is taken as it is."""
    if isinstance(error, FetchboxError):
        return error
    return from_rpc(error.code(), error.details() or "", error.trailing_metadata() or ())
