"""Columns from protobuf descriptors, and rows from messages."""
