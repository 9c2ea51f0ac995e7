"""A handler of a step: it counts the words of what another step stored, and stores a catalogue beside it."""

import json
import os
from typing import Any
from urllib.parse import urlsplit

import boto3

from fetchbox.handlers import SyncTaskRun, TaskHandler


class Catalogue(TaskHandler):
    """`{"results": "s3://…", "approved_by": …}` becomes `{"catalogue": "s3://…", "objects": n, "words": n}`.

    It may run again after a crash: the catalogue of a run has one place, and is written in one piece.
    """

    def run(self, payload: dict[str, Any], run: SyncTaskRun) -> Any:
        """Boto blocks, so this is a plain function, which gets a thread of its own."""
        store = _store()
        bucket, key = _place(payload["results"])
        lines = store.get_object(Bucket=bucket, Key=key)["Body"].read().splitlines()
        found = [result for result in map(json.loads, lines) if result["state"] == "stored"]
        entries = []
        for result in found:
            body = store.get_object(**dict(zip(("Bucket", "Key"), _place(result["key"]), strict=True)))["Body"].read()
            words = len(body.split()) if result["content_type"].startswith("text/") else 0
            entries.append({"id": result["resource_id"], "key": result["key"], "bytes": len(body), "words": words})
            run.log("counted", id=result["resource_id"], words=words)
            run.progress(done=len(entries), total=len(found))
        catalogue = {"run": run.flow_id, "approved_by": payload["approved_by"], "objects": entries}
        key = f"catalogues/{run.flow_id}.json"
        store.put_object(Bucket=bucket, Key=key, Body=json.dumps(catalogue).encode(), ContentType="application/json")
        words = sum(entry["words"] for entry in entries)
        return {"catalogue": f"s3://{bucket}/{key}", "objects": len(entries), "words": words}


def _store() -> Any:
    """The store of this worker. `fetchbox up` gives these to its roles; elsewhere set them, or use an AWS profile."""
    return boto3.client(
        "s3",
        endpoint_url=os.environ.get("FETCHBOX_OBJECT_STORE_ENDPOINT"),
        aws_access_key_id=os.environ.get("FETCHBOX_OBJECT_STORE_ACCESS_KEY_ID"),
        aws_secret_access_key=os.environ.get("FETCHBOX_OBJECT_STORE_SECRET_ACCESS_KEY"),
        region_name="us-east-1",
    )


def _place(url: str) -> tuple[str, str]:
    """Bucket and key of `s3://bucket/key`."""
    parts = urlsplit(url)
    return parts.netloc, parts.path.removeprefix("/")
