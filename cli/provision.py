"""What has to exist before the first job: the bucket and the four streams."""

import asyncio

from cli.found_data import where_to_look
from cli.problems import from_kernel
from fetchbox.config.v1.config_pb2 import Config


def provision(config: Config, *, bucket: bool = True) -> None:
    """Creates what is missing; safe to repeat. Raises a CommandError when a server does not answer."""
    from kernel.errors import FetchboxError  # noqa: PLC0415  # storage clients take 0.5 s to import

    try:
        asyncio.run(_provision(config, bucket))
    except FetchboxError as error:
        raise from_kernel(error, where_to_look("name the servers with --config or REDIS_ADDR")) from error


async def _provision(config: Config, bucket: bool) -> None:
    from kernel.log.provisioning import provision as provision_streams  # noqa: PLC0415
    from kernel.service.resources import Resources  # noqa: PLC0415

    resources = await Resources.open(config)
    try:
        await provision_streams(resources.redis, config)
        if bucket:
            await resources.objects.ensure_bucket()
    finally:
        await resources.close()
