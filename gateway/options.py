"""What a gateway may do one way or another: the leniences and forms of ProtoJSON and of query strings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The defaults are those of FetchBox's own gateway, but for `milliseconds`."""

    zeros: bool = True
    """Whether fields without presence are printed while they have their zero value."""
    proto_names: bool = False
    """Whether fields are printed under their names in the proto, and not under their JSON names."""
    milliseconds: bool = False
    """Whether timestamps are printed with at least three decimals, so that their text sorts as they do."""
    case_insensitive_enums: bool = False
    """Whether `running` is read as `RUNNING`."""
    ignore_unknown_query: bool = False
    """Whether parameters that name no field are left out, and not refused."""
