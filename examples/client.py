"""Submits a manifest by gRPC and follows its job to the end.

python examples/client.py examples/manifest.json
"""

import hashlib
import os
import sys
from pathlib import Path

from fetchbox_client import Client

INGEST = os.environ.get("FETCHBOX_INGEST", "127.0.0.1:50051")
OPERATOR = os.environ.get("FETCHBOX_OPERATOR", "127.0.0.1:50053")


def main() -> int:
    """0 when everything is stored."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    manifest = Path(sys.argv[1]).read_bytes()
    # The client makes a key for each submit; this one makes a second run of the program find the job of the first.
    key = f"example-{hashlib.sha256(manifest).hexdigest()}"
    with Client(INGEST, operator=OPERATOR, token=os.environ.get("FETCHBOX_TOKEN", "")) as client:
        job_id = client.jobs.submit(manifest, idempotency_key=key).job_id
        for event in client.jobs.watch(job_id):  # ends after the last event, whatever is restarted meanwhile
            print(event.id, event.type, event.data)
        job = client.jobs.snapshot(job_id)
        print(f"{job.status}: {job.resource_completed} of {job.resource_total} stored; results: {job.results_key}")
    return 0 if job.status == "completed" else 1


if __name__ == "__main__":
    sys.exit(main())
