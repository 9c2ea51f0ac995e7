"""The job that a submit becomes: its identity, and where its objects are."""

from dataclasses import dataclass

from fetchbox.config.v1.config_pb2 import JobType
from ingest_svc.reading import JobReading
from kernel import places
from kernel.handlers import Manifest
from kernel.ledger import JobRecord
from kernel.objects import s3_uri


@dataclass(frozen=True, slots=True)
class Job:
    """One job, before and after it is accepted."""

    job_id: str
    job_type: str
    settings: JobType
    bucket: str
    tenant: str
    trace_id: str = ""
    traceparent: str = ""

    @property
    def document_key(self) -> str:
        """The object of the submitted document."""
        return places.document(self.job_type, self.job_id)

    @property
    def tasks_key(self) -> str:
        """The object of the built tasks, beside the document."""
        return places.tasks(self.job_type, self.job_id)

    @property
    def manifest_key(self) -> str:
        """`s3://` address of the document, as clients see it."""
        return s3_uri(self.bucket, self.document_key)

    def record(self, total: int) -> JobRecord:
        """The ledger's record of the job with `total` resources."""
        return JobRecord(
            job_id=self.job_id,
            job_type=self.job_type,
            tenant=self.tenant,
            resource_total=total,
            manifest_key=self.manifest_key,
            trace_id=self.trace_id,
        )

    def view(self, reading: JobReading) -> Manifest:
        """The manifest as handlers see it."""
        return Manifest(
            job_id=self.job_id,
            job_type=self.job_type,
            resources=reading.resources,
            settings=self.settings,
            tenant=self.tenant,
            trace_id=self.trace_id,
            manifest_key=self.manifest_key,
            metadata_json=reading.metadata,
            attributes_json=reading.attributes,
        )
