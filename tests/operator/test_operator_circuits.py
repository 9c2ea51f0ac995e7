"""Health names the breakers that are not closed, a few of them, and is only degraded by them."""

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.breakers import Breakers
from kernel.clock import SystemClock
from kernel.redis.clients import RedisClients
from operator_svc.circuits import problems


async def _open(config: Config, names: list[str]) -> None:
    clients = await RedisClients.open(config.redis)
    breakers = Breakers(clients, config.circuit_breaker, SystemClock())
    for name in names:
        for _ in range(config.circuit_breaker.min_samples):
            breakers.record(name, ok=False)
    await breakers.stop()
    await clients.close()


async def test_open_breakers_degrade_health_and_are_named(operator, config: Config) -> None:
    await _open(config, ["host:example.org", "queue:jobqueue:low_priority"])
    found = await operator.GetHealth(pb.GetHealthRequest(), timeout=10)
    part = next(part for part in found.components if part.name == "breakers")
    assert (part.status, part.critical) == ("degraded", False)
    assert part.message == "host:example.org is open; queue:jobqueue:low_priority is open"
    assert found.status == "degraded"


async def test_many_are_counted_and_a_few_named(config: Config) -> None:
    await _open(config, [f"host:{number:02}" for number in range(37)])
    clients = await RedisClients.open(config.redis)
    breakers = Breakers(clients, config.circuit_breaker, SystemClock())
    found = await problems(breakers)
    await breakers.stop()
    await clients.close()
    assert len(found) == 11
    assert found[0] == "host:00 is open"
    assert found[-1] == "and 27 more"
