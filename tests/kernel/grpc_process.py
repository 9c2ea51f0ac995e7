"""A gRPC server with one token, in a process of its own, so that its memory is its alone. Writes its port."""

import asyncio
import sys

import grpc

from fetchbox.operator.v1 import operator_service_pb2_grpc
from kernel.config import loading as configuration
from kernel.rpc.server import GrpcServer

NAME = "fetchbox.operator.v1.OperatorService"


def _add(server: grpc.aio.Server) -> None:
    operator_service_pb2_grpc.add_OperatorServiceServicer_to_server(
        operator_service_pb2_grpc.OperatorServiceServicer(), server
    )


async def main() -> None:
    config = configuration.defaults()
    config.security.operator_tokens.append("op-token")
    config.gateway.max_request_bytes = 64 << 20  # so that no limit of size refuses what this test sends
    server = GrpcServer("operator", "127.0.0.1:0", config, _add, [NAME])
    await server.start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()


asyncio.run(main())
