"""A handler of one's own: it leaves out thumbnails, sorts objects by day, and tells when a gallery is complete."""

from fetchbox.handlers import (
    JobHandler,
    JobSummary,
    Manifest,
    PreparedManifest,
    Resource,
    StorageHint,
    key_segment,
)


class GalleryHandler(JobHandler):
    """Used by the job type `gallery` of examples/fetchbox.toml."""

    def prepare_manifest(self, manifest: Manifest) -> PreparedManifest:
        """Ingest asks before the job is accepted: thumbnails are not worth fetching."""
        skipped = self.options.get("skip_suffix", "_thumb")
        return PreparedManifest(manifest, [r for r in manifest.resources if not r.id.endswith(skipped)])

    def storage_for(self, resource: Resource, manifest: Manifest) -> StorageHint:
        """Where each object goes: `gallery/{day}/{job}/…`, with its source as metadata."""
        day = str(manifest.attributes.get("crawled_at", "undated"))[:10]
        prefix = f"gallery/{key_segment(day)}/{manifest.job_id}/"
        return StorageHint(key_prefix=prefix, metadata={"source": resource.url})

    def finalize_job(self, summary: JobSummary) -> None:
        """A worker calls this when every resource is settled; it may be called again after a crash."""
        print(f"gallery {summary.job_id}: {summary.status}")
