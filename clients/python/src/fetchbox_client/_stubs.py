"""Makes the stubs importable where `fetchbox_client.pth` is not read, for instance after `pip install --target`.

At the end of the path they shadow nothing: the stubs of an installed FetchBox come first.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

_HERE = str(Path(__file__).parent / "_gen")

if _HERE not in sys.path and find_spec("fetchbox") is None:
    sys.path.append(_HERE)
