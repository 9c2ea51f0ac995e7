"""What may be wrong with the lake, and with what reads it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cli.problems import REFUSED, SOME_FAILED, UNAVAILABLE, USAGE, CommandError, from_kernel

if TYPE_CHECKING:
    from fetchbox.config.v1.config_pb2 import Config

_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
}
"""What says that a store of AWS is meant."""
_STORE_HINT = (
    "Is that the object store of this platform? Name it with --config, run this where `fetchbox up` was started, or set"
    " FETCHBOX_DATA to its --data."
)


def with_store(config: "Config") -> "Config":
    """The configuration, which must name an object store, or the environment credentials of AWS. CommandError.

    Otherwise the client would ask the metadata address of a cloud, which may not answer, or answer with anything.
    """
    from kernel.config.loading import defaults  # noqa: PLC0415  # it is loaded by now

    if config.object_store != defaults().object_store or _CREDENTIALS & set(os.environ):
        return config
    raise CommandError("no object store is configured: [object_store] is empty", USAGE, "CONFIG", _STORE_HINT)


@contextmanager
def lake_problems() -> Iterator[None]:
    """Turns the errors of `pipeline` into a `CommandError`."""
    from kernel.errors import FetchboxError  # noqa: PLC0415  # 0.3 s that most commands need not pay
    from pipeline.extras import ExtraMissingError  # noqa: PLC0415
    from pipeline.lake.errors import LakeFileError  # noqa: PLC0415

    try:
        yield
    except ExtraMissingError as error:
        raise CommandError(str(error), USAGE, "NOT_INSTALLED") from error
    except LakeFileError as error:
        raise CommandError(str(error), REFUSED, "LAKE_FILE") from error
    except FetchboxError as error:
        raise from_kernel(error, _STORE_HINT) from error


@contextmanager
def spark_problems() -> Iterator[None]:
    """The same, for what runs Spark: it is imported in here."""
    with lake_problems():
        from pipeline.extras import require  # noqa: PLC0415  # as above

        require("spark")
        from pipeline.spark.faults import ReadError, SparkFault, readable  # noqa: PLC0415
        from pipeline.spark.jvm import JavaError  # noqa: PLC0415

        try:
            with readable():
                yield
        except JavaError as error:
            raise CommandError(str(error), USAGE, "NOT_INSTALLED") from error
        except ReadError as error:
            if error.unavailable:
                raise CommandError(str(error), UNAVAILABLE, "UNAVAILABLE", _STORE_HINT) from error
            raise CommandError(str(error), REFUSED, "LAKE_FILE") from error
        except SparkFault as error:
            raise CommandError(str(error), SOME_FAILED, error.condition) from error
