"""A protoc plugin that writes `*_pb2_grpc.py`, by handing the request on to the compiler within grpcio-tools.

buf finds no `grpc_python` plugin of its own; `buf.gen.yaml` names this file in its place.
"""

import sys
import tempfile
from pathlib import Path

from google.protobuf.compiler.plugin_pb2 import CodeGeneratorRequest, CodeGeneratorResponse
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc


def generate(request: CodeGeneratorRequest) -> CodeGeneratorResponse:
    """The stubs of every requested file that declares a service."""
    response = CodeGeneratorResponse(supported_features=CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL)
    with_services = {file.name for file in request.proto_file if file.service}
    names = [name for name in request.file_to_generate if name in with_services]
    if not names:
        return response
    with tempfile.TemporaryDirectory() as folder:
        descriptors = Path(folder, "descriptors.pb")
        descriptors.write_bytes(FileDescriptorSet(file=request.proto_file).SerializeToString())
        out = Path(folder, "out")
        out.mkdir()
        arguments = [f"--descriptor_set_in={descriptors}", f"--grpc_python_out={out}", *names]
        if protoc.main(["protoc", *arguments]) != 0:
            response.error = f"protoc failed for {names}"
            return response
        for path in sorted(out.rglob("*.py")):
            response.file.add(name=str(path.relative_to(out)), content=path.read_text())
    return response


def main() -> None:
    """Speaks the plugin protocol on standard input and output."""
    request = CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    sys.stdout.buffer.write(generate(request).SerializeToString())


if __name__ == "__main__":
    main()
