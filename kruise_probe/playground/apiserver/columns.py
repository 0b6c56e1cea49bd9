"""One column of a table, as kinds declare them.

Source: metav1.TableColumnDefinition.
Differs: nothing.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from kruise_probe.playground.apiserver.schema import Json


class Column(NamedTuple):
    """`cell` gives the value for an object at a time; `wide` hides the column unless asked for."""

    name: str
    type: str
    cell: Callable[[Json, datetime], Any]
    wide: bool = False
    format: str = ""
    description: str = ""

    @property
    def definition(self) -> Json:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": int(self.wide),
        }
