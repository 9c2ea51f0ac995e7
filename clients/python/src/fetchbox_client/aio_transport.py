"""Makes calls and reads streams on an event loop."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc

from fetchbox_client.calls import A, Call, Method, R, Stream, encode
from fetchbox_client.errors import FetchboxError
from fetchbox_client.options import Options
from fetchbox_client.resume import Reading
from fetchbox_client.retry import Attempts, Patience
from fetchbox_client.transport import error_of


class AsyncTransport:
    """The channels of one client."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._channel = self._connected(options.target)
        shared = options.operator == options.target
        self._operator = self._channel if shared else self._connected(options.operator)

    async def unary(self, call: Call[A]) -> A:
        """The answer of a call."""
        options = self._options
        attempts = Attempts(options.retry, options.timeout, repeatable=call.repeatable, key=call.key)
        method = self._channel_of(call.method).unary_unary(
            call.method.path, request_serializer=encode, response_deserializer=call.method.decode
        )
        while True:
            try:
                return await method(call.request, timeout=attempts.timeout(), metadata=options.metadata)
            except grpc.aio.AioRpcError as error:
                await asyncio.sleep(attempts.failed(error_of(error)))

    async def stream(self, stream: Stream[A, R], cursor: str, timeout: float | None) -> AsyncGenerator[R, None]:
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
                async for message in messages:
                    if reading.takes(message):
                        yield stream.read(message)
                if reading.ended():
                    return
                reading.looked(await self.unary(stream.record))
            except (grpc.aio.AioRpcError, FetchboxError) as error:
                pause = reading.lost(error_of(error))
                if pause is None:
                    return
                await asyncio.sleep(pause)
            finally:
                messages.cancel()

    async def close(self) -> None:
        """Ends every call."""
        await self._channel.close()
        await self._operator.close()

    def _channel_of(self, method: Method[Any]) -> grpc.aio.Channel:
        return self._operator if method.is_operators else self._channel

    def _connected(self, target: str) -> grpc.aio.Channel:
        arguments = self._options.arguments(target)
        if self._options.tls is None:
            return grpc.aio.insecure_channel(target, arguments)
        return grpc.aio.secure_channel(target, self._options.tls.credentials(), arguments)
