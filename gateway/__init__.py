"""REST and Server-Sent Events over gRPC, driven by descriptors alone."""
