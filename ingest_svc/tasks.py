"""The tasks of a job: built by the handler of its type, serialized once, and kept as one object.

A job whose handler changes nothing gets its tasks by a shorter way that makes the same messages: what all tasks of a
job share is serialized once, for a protobuf message is the concatenation of its parts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fetchbox.ingest.v1 import manifest_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask, TaskAttributes
from kernel.handlers import JobHandler, Manifest, merged_headers, plan_tasks
from kernel.handlers.handler import TAG_CHECKSUM, TAG_CONTENT_TYPE

CONTENT_TYPE = "application/x-protobuf; messageType=fetchbox.jobs.DownloadTask; delimited=true"

_STOCK_HOOKS = ("prepare_manifest", "build_tasks", "build_task", "storage_for")


async def build(handler: JobHandler, message: manifest_pb2.Manifest, view: Manifest) -> list[bytes]:
    """The serialized tasks in the order of the manifest. `view.resources` may be left empty for a stock handler.

    A handler's own `FetchboxError` passes; any other fault of it is `INTERNAL_ERROR` (`plan_tasks`).
    """
    if is_stock(handler):
        return _stock_tasks(handler, message.resources, view)
    return [task.SerializeToString() for task in await plan_tasks(handler, view)]


def is_stock(handler: JobHandler) -> bool:
    """Whether a handler makes the tasks that the base class makes."""
    return all(getattr(type(handler), hook) is getattr(JobHandler, hook) for hook in _STOCK_HOOKS)


def pack(tasks: Iterable[bytes]) -> bytes:
    """Length-delimited messages: each after its length as a varint."""
    return b"".join(part for task in tasks for part in (_varint(len(task)), task))


def unpack(packed: bytes) -> list[bytes]:
    """The messages of `pack`; `ValueError` for anything else."""
    tasks, position = [], 0
    while position < len(packed):
        length, position = _read_varint(packed, position)
        if position + length > len(packed):
            raise ValueError(f"the message at byte {position} is cut off")
        tasks.append(packed[position : position + length])
        position += length
    return tasks


def _stock_tasks(handler: JobHandler, resources: Sequence[manifest_pb2.Resource], view: Manifest) -> list[bytes]:
    shared = _shared(handler, view, len(resources)).SerializeToString()
    defaults = view.settings.default_headers
    headers: dict[tuple[tuple[str, str], ...], bytes] = {}
    tasks = []
    for index, resource in enumerate(resources, start=1):
        key = tuple(resource.headers.items())
        if key not in headers:
            headers[key] = DownloadTask(headers=merged_headers(defaults, resource.headers)).SerializeToString()
        own = DownloadTask(
            resource_id=resource.id, url=resource.url, attributes=_attributes(resource.tags), resource_index=index
        )
        tasks.append(shared + headers[key] + own.SerializeToString())
    return tasks


def _shared(handler: JobHandler, view: Manifest, total: int) -> DownloadTask:
    """What all tasks of a job have in common, storage and proxies as the handler gives them."""
    task = DownloadTask(
        job_id=view.job_id,
        job_type=view.job_type,
        tenant=view.tenant,
        trace_id=view.trace_id,
        manifest_key=view.manifest_key,
        resources_total=total,
    )
    sample = handler.build_task(view.resources[0], view)
    task.proxy_hint.CopyFrom(sample.proxy_hint)
    task.storage_hint.CopyFrom(sample.storage_hint)
    return task


def _attributes(tags: Mapping[str, str]) -> TaskAttributes:
    return TaskAttributes(
        tags=tags, checksum_hint=tags.get(TAG_CHECKSUM, ""), mime_hint=tags.get(TAG_CONTENT_TYPE, "")
    )


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    for byte in _bytes_from(data, position):
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, position
    raise ValueError(f"no length at byte {position}")


def _bytes_from(data: bytes, position: int) -> Iterator[int]:
    return iter(memoryview(data)[position : position + 5])
