"""Plain values of nodes, with the types that kubectl gives them.

Source: sigs.k8s.io/yaml goyaml.v2/resolve.go (YAML 1.1 booleans and octal numbers, no sexagesimal numbers).
Differs: a time stays text, as it does after kubectl's conversion to JSON.
"""

import re
from typing import Any, Final

from kruise_probe.lint.nodes import MappingNode, ScalarNode, SequenceNode, YamlNode

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}  # fmt: skip
_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0b(?P<binary>[01_]+)|0x(?P<hex>[0-9A-Fa-f_]+)|0o?(?P<octal>[0-7_]+)|(?P<decimal>0|[1-9][0-9_]*))"
)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASES: Final = {"binary": 2, "hex": 16, "octal": 8, "decimal": 10}
_MAX_DIGITS: Final = 100
"""A longer number is out of every range. Python refuses to convert thousands of digits."""
_TEXT_TAGS: Final = frozenset({"tag:yaml.org,2002:str", "!", "tag:yaml.org,2002:binary"})

Plain = str | int | float | bool | None


def scalar_value(node: ScalarNode) -> Plain:
    """The value of a scalar: text, number, boolean or None."""
    if not node.plain or node.tag in _TEXT_TAGS:
        return node.text
    if node.text in _NULLS:
        return None
    if node.text in _BOOLEANS:
        return _BOOLEANS[node.text]
    if len(node.text) <= _MAX_DIGITS:
        if match := _INTEGER.fullmatch(node.text):
            return _integer(match)
        if _FLOAT.fullmatch(node.text):
            return float(node.text)
    elif _FLOAT.fullmatch(node.text):
        return float("inf")
    return node.text


def _integer(match: re.Match[str]) -> int:
    ((name, digits),) = (
        each for each in match.groupdict().items() if each[0] != "sign" and each[1] is not None
    )
    digits = digits.replace("_", "")
    value = int(digits, _BASES[name]) if digits else 0
    return -value if match["sign"] == "-" else value


def value_of(node: YamlNode) -> Any:
    """The node as plain Python values."""
    if isinstance(node, MappingNode):
        return {key: value_of(entry.value) for key, entry in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [value_of(each) for each in node.items]
    return scalar_value(node)


def text_of(node: YamlNode | None) -> str:
    """The text of a scalar that is a string; empty for anything else."""
    value = scalar_value(node) if isinstance(node, ScalarNode) else None
    return value if isinstance(value, str) else ""
