"""Kubeconfigs as users have them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Part = Mapping[str, Any]


def kubeconfig_for(url: str, folder: Path, name: str) -> Path:
    """Write a file for a server without credentials."""
    path = folder / f"{name}.kubeconfig"
    kubeconfig(path, cluster={"server": url}, user={}, context={})
    return path


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
    cluster = cluster or {"server": "http://127.0.0.1:8001"}
    if user is None:
        user = {"token": "file-token"}
    if context is None:
        context = {"namespace": "team"}
    used = {"cluster": name, "user": name, **context}
    content = {
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": used}],
        "current-context": name if current is None else current,
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)
