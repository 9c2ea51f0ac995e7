"""Chaos on the main job: every process is killed at random while manifests are accepted and fetched.

`python -m benchmarks.chaos --seed 7` prints its seed, so that a run can be repeated, and exits with 1 when anything
accepted was lost, counted wrongly, or stored wrongly.
"""
