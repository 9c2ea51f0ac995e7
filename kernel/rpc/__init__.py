"""gRPC as every service speaks it: servers, channels, and the interceptor that knows the caller before the message."""
