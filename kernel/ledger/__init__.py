"""The ledger: the record of every job (`job:{id}`), its events, and the only legal transitions.

One job's story: `accept` writes the record and its first event, once; the lane's scripts move it while tasks are
claimed and settled; `cancel`, `replay` and the finalization end or reopen it; `delete` forgets it. Terminal states
absorb: nothing but a replay leaves them. Indexes over jobs live in other cluster slots than the jobs: they are
written after the record, may be written again, and a reader skips what they name in vain.
"""

from kernel.ledger.ends import Ends
from kernel.ledger.events import JobEvent, Timeline
from kernel.ledger.finals import FinalHold, Finals
from kernel.ledger.intake import RecordIntake
from kernel.ledger.listing import Listing
from kernel.ledger.mirroring import Mirroring
from kernel.ledger.record import JobRecord, job_state, job_status, operator_status
from kernel.ledger.records import Records
from kernel.ledger.steering import Steering
from kernel.ledger.tasks import TaskRecord, TaskRecords

__all__ = ["FinalHold", "JobEvent", "JobRecord", "Ledger", "TaskRecord", "job_state", "job_status", "operator_status"]


class Ledger(RecordIntake, Finals, Ends, Listing, Records, Timeline, Steering, Mirroring, TaskRecords):
    """Everything that may be done with job records. Every method raises `UNAVAILABLE` while Redis is down."""
