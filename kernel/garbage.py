"""How often a process that makes many short-lived objects looks for garbage that reference counts do not free."""

import gc

_THRESHOLDS = (20_000, 20, 20)


def collect_seldom() -> None:
    """Leaves what lives by now out of every collection, and collects after 20,000 new containers instead of 700.

    A task makes some thirty of them and no cycle, so a collection costs a busy worker time and finds nothing. A body of
    six megabytes of `[],` makes two million, and the collections cost more than reading it. Called once the
    parts of a process are made.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
