"""A hand that does to task jobs what ingest and workers do."""

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, QueuedTask
from kernel.ids import uuid7
from kernel.ledger.base import begin_keys
from kernel.ledger.record import error_json
from kernel.ledger.task_queue import NewTask, TaskQueue
from kernel.log.topics import Topics
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients

PAYLOAD = b'{"prompt": "s3cr3tpayload", "n": 847458834325543643}'
PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


class TaskHand:
    """Makes task jobs through the real queue, and ends them with the scripts of the lane."""

    def __init__(self, clients: RedisClients, config: Config) -> None:
        self.clients = clients
        self.redis = clients.commands
        self.queue = TaskQueue(clients, config)
        self.topics = Topics(clients, config)

    async def job(self, task: str = "chat", **facts) -> str:
        """A queued job."""
        facts = {"payload": PAYLOAD, "ttl_s": 3600, "trace_id": "a" * 32, **facts}
        job_id = uuid7()
        await self.queue.create(NewTask(job_id, task, **facts))
        return job_id

    async def start(self) -> tuple[str, QueuedTask, int]:
        """Reads the next entry and starts its job: entry, task, and the token (not above 0: it must not run)."""
        reply = await self.redis.xreadgroup(keys.GROUP_WORKERS, "w", {keys.QUEUE: ">"}, count=1)
        ((entry, fields),) = reply[0][1] if isinstance(reply, list) else reply[keys.QUEUE.encode()][0]
        found = {name.decode(): value for name, value in fields.items()}
        replay = int(found.get("replay", b"0"))
        task = QueuedTask(job_id=found["job_id"].decode(), task=found["task"].decode(), replay=replay)
        task.payload = found["payload"]
        answer = await self.clients.call(
            scripts.TASK_START, begin_keys(task.job_id), ["w", "worker.claim", 1, (replay << 20) | 1, 1, 0, entry]
        )
        return entry.decode(), task, answer[0]

    async def settle(self, entry: str, task: QueuedTask, token: int, code: str = "", *, published: bool = True) -> str:
        """Ends a started job, done or failed; the verdict. Its worker may die before anything is published."""
        value = error_json(code, "no luck", attempts=1) if code else b'{"answer": 42}'
        settled = [token, "worker.settle", "f" if code else "o", value, value, 3600, 60_000]
        await self.clients.call(scripts.NOTE, [keys.UNPUBLISHED], [task.job_id])
        verdict = (await self.clients.call(scripts.TASK_SETTLE, begin_keys(task.job_id), settled))[0]
        if not published:
            return verdict.decode()
        if code:
            await self.letter(task.job_id, task=task.task, replay=task.replay, code=code)
        await self.acknowledge(entry, task.task)
        await self.redis.zrem(keys.UNPUBLISHED, task.job_id)
        return verdict.decode()

    async def acknowledge(self, entry: str, task: str) -> None:
        """Takes an entry off the queue."""
        await self.clients.call(scripts.TASK_ACKNOWLEDGE, keys.QUEUE_PLACES, [keys.GROUP_WORKERS, entry, task])

    async def work(self, code: str = "") -> str:
        """Reads the next entry and ends its job; the id of the job."""
        entry, task, token = await self.start()
        assert token > 0
        assert await self.settle(entry, task, token, code) == "n"
        return task.job_id

    async def failed(self, task: str = "chat", **facts) -> tuple[str, str]:
        """A failed job and the position of its letter."""
        job_id = await self.job(task, **facts)
        assert await self.work("HANDLER_HTTP_400") == job_id
        partition = self.topics.dlq.partition_of(job_id)
        return job_id, f"{partition}:{await self.topics.dlq.last(partition)}"

    async def letter(self, job_id: str, code: str = "HANDLER_HTTP_400", traceparent: str = PARENT, **facts) -> str:
        """A dead letter of the job as the lane writes it; its position."""
        queued = QueuedTask(
            job_id=job_id, **{"task": "chat", "payload": PAYLOAD, "ttl_s": 3600, "trace_id": "a" * 32, **facts}
        )
        letter = DeadLetterTask(
            queued_task=queued,
            failure_code=code,
            failure_message="GET http://h/x?sig=s3cr3tpayload was refused",
            attempts=1,
            failed_at_ms=await self.clients.now_ms(),
            id=f"{job_id}//{queued.replay}",
        )
        entry = await self.topics.dlq.publish(letter, key=job_id, traceparent=traceparent)
        return f"{self.topics.dlq.partition_of(job_id)}:{entry}"

    async def expire(self, job_id: str) -> None:
        """What the end of a TTL leaves: nothing of the record and its events."""
        await self.redis.delete(*_keys(job_id))

    async def record(self, job_id: str) -> dict[str, str]:
        """The hash of a job."""
        found = await self.redis.hgetall(keys.job(job_id))
        return {name.decode(): value.decode() for name, value in found.items()}

    async def entries(self) -> list[dict[str, str]]:
        """What is on the queue."""
        found = await self.redis.xrange(keys.QUEUE)
        return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in found]

    async def open(self) -> dict[str, int]:
        """What is counted as open, by task."""
        return {name.decode(): int(count) for name, count in (await self.redis.hgetall(keys.open_tasks())).items()}


def _keys(job_id: str) -> list[str]:
    return [keys.job(job_id), keys.job_events(job_id)]
