"""Kubeconfigs as users have them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Part = Mapping[str, Any]


def kubeconfig(
    path: Path,
    *,
    name: str = "own",
    cluster: Part | None = None,
    user: Part | None = None,
    context: Part | None = None,
    current: str | None = None,
) -> str:
    """Write a file with one cluster, user and context of this name; return its path.

    The context has the namespace `team`, unless `context` replaces it.
    """
    used = {"cluster": name, "user": name}
    used |= {"namespace": "team"} if context is None else context
    parts: dict[str, Part] = {
        "clusters": {"cluster": cluster or {"server": "http://127.0.0.1:8001"}},
        "users": {"user": {"token": "file-token"} if user is None else user},
        "contexts": {"context": used},
    }
    content = {kind: [{"name": name, **part}] for kind, part in parts.items()}
    current = name if current is None else current
    path.write_text(yaml.safe_dump({**content, "current-context": current}))
    return str(path)
