"""Flows: durable runs of steps that can wait for a webhook, an event, a time or a person.

Rooms, from the ground up: `model` (kinds of events, and what a run is after its events), `definitions` (what the
configuration says), `journal` (where timelines and projections are kept), `publishing` (the one way to publish an
event), `gates` (how a run begins, is opened from outside, and ends), `engine` (what moves runs on), `tails` (what
clients read).
"""
