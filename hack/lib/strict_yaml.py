"""Checks that YAML files parse and that no mapping repeats a key.

Most loaders silently keep the last value of a repeated key; GitHub refuses the whole workflow.
"""

import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml


class StrictLoader(yaml.SafeLoader):
    """A SafeLoader that refuses repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set[str]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} is repeated; remove one of the two",
                    problem_mark=key.start_mark,
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def main() -> int:
    failed = False
    for name in sys.argv[1:]:
        try:
            with Path(name).open() as file:  # errors name the file and the line
                list(yaml.load_all(file, StrictLoader))
        except yaml.YAMLError as error:
            failed = True
            print(error, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
