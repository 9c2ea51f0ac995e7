"""Submits a manifest by gRPC and follows its job to the end.

python examples/client.py examples/manifest.json
"""

import hashlib
import os
import sys
from pathlib import Path

import grpc
from google.api.httpbody_pb2 import HttpBody

from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceStub
from fetchbox.operator.v1.operator_service_pb2 import GetJobRequest, WatchJobRequest
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub

INGEST = os.environ.get("FETCHBOX_INGEST", "127.0.0.1:50051")
OPERATOR = os.environ.get("FETCHBOX_OPERATOR", "127.0.0.1:50053")


def main() -> int:
    """0 when everything is stored."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    manifest = Path(sys.argv[1]).read_bytes()
    document = HttpBody(content_type="application/json", data=manifest)
    key = f"example-{hashlib.sha256(manifest).hexdigest()}"
    with grpc.insecure_channel(INGEST) as ingest, grpc.insecure_channel(OPERATOR) as operator:
        # With an idempotency key, a submit whose answer was lost can be repeated without making a second job.
        request = SubmitJobRequest(job_type="default", idempotency_key=key, document=document)
        job_id = IngestServiceStub(ingest).SubmitJob(request).job_id
        jobs = OperatorServiceStub(operator)
        for event in jobs.WatchJob(WatchJobRequest(job_id=job_id)):  # ends after the terminal event
            print(event.id, event.type, event.data.decode())
        job = jobs.GetJob(GetJobRequest(job_id=job_id))
        print(f"{job.status}: {job.resource_completed} of {job.resource_total} stored; results: {job.results_key}")
    return 0 if job.status == "completed" else 1


if __name__ == "__main__":
    sys.exit(main())
