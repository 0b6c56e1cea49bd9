"""Objects as JSON."""

from typing import Any

Json = dict[str, Any]
