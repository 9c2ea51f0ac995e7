"""The `fetchbox` command: a gRPC client for people, and the launcher of every role."""
