"""A worker elsewhere, as a process that can die: it has the stubs, an address, and nothing else of FetchBox.

It claims what there is and completes it. A payload `{"kill": true}` kills it, with signal 9, while it holds that task
and whatever it claimed beside it.
"""

import json
import os
import signal
import sys
import uuid
from contextlib import suppress

import grpc
from google.protobuf.duration_pb2 import Duration

from fetchbox.worker.v1.worker_service_pb2 import ClaimTasksRequest, CompleteTaskRequest
from fetchbox.worker.v1.worker_service_pb2_grpc import WorkerServiceStub


def main(address: str, kind: str, most: int) -> None:
    worker = f"mortal-{uuid.uuid4()}"
    with grpc.insecure_channel(address) as channel:
        stub = WorkerServiceStub(channel)
        while True:
            request = ClaimTasksRequest(worker_id=worker, max_tasks=most, wait=Duration(seconds=5), kinds=[kind])
            claimed = stub.ClaimTasks(request).tasks
            for task in claimed:
                if json.loads(task.queued_task.payload).get("kill"):
                    os.kill(os.getpid(), signal.SIGKILL)
            for task in claimed:
                done = CompleteTaskRequest(worker_id=worker, claim=task.claim, result=task.queued_task.payload)
                with suppress(grpc.RpcError):  # on a machine so busy that its lease has lapsed
                    stub.CompleteTask(done)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
