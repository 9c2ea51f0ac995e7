"""Servers that `fetchbox up`, `fetchbox demo` and the tests start for themselves: Valkey and SeaweedFS."""
