"""Runs the transcoding cases: `given` rules and an upstream, one request, and what is `expected` of the answer.

`python -m tests.gateway.transcoding [FILE]` prints the counts of a table; the test runs `tests/cases/transcoding.json`.
"""
