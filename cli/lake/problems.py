"""What may be wrong with the lake, and with what reads it."""

from collections.abc import Iterator
from contextlib import contextmanager

from cli.problems import REFUSED, SOME_FAILED, UNAVAILABLE, USAGE, CommandError, from_kernel

_STORE_HINT = (
    "Is that the object store of this platform? Name it with --config, run this where `fetchbox up` was started, or set"
    " FETCHBOX_DATA to its --data."
)


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
