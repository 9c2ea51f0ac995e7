"""What is wrong with a value, and where: the one error of everything that reads JSON, paths and queries."""

_SHOWN = 200
"""How much of a name in the input a path shows, in characters."""


class MismatchError(ValueError):
    """A value that its field cannot take. `at` is put together from the inside out while the error travels up."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def at(self, part: str | int) -> "MismatchError":
        """The same error, seen from one level further out."""
        step = f"[{part}]" if isinstance(part, int) else part[:_SHOWN]
        joint = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{step}{joint}{self.path}"
        return self


class InexactError(Exception):
    """A number lost digits on its way through a float: the document must be read again with exact numbers."""


MAX_DEPTH = 100
"""How deep messages may nest: the limit of protobuf's own parsers."""


def check_depth(depth: int) -> None:
    """Raises `MismatchError` beyond `MAX_DEPTH`."""
    if depth > MAX_DEPTH:
        raise MismatchError(f"is nested deeper than {MAX_DEPTH} levels")
