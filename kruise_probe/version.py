"""Which version this is, as it stands in user agents and logs."""

from importlib.metadata import version
from typing import Final

TEXT: Final = version("kruise-probe")
