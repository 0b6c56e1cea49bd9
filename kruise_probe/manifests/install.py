"""The default install, in the order to apply it."""

from collections.abc import Iterable
from typing import Any

import yaml

from kruise_probe.manifests.crds import all_crds
from kruise_probe.manifests.rbac import daemon_rbac, manager_rbac, metrics_rbac, own_node_policy
from kruise_probe.manifests.webhook import webhook
from kruise_probe.manifests.workloads import Install, daemon, disruption_budget, manager, namespace


def default_install(install: Install, *, admission_policy: bool = True) -> list[dict[str, Any]]:
    """Build CRDs, namespace, RBAC, the daemons' admission policy, the webhook and the workloads.

    Set `admission_policy` to False before Kubernetes 1.30, which has no ValidatingAdmissionPolicy.
    """
    return [
        *all_crds(install.allowed_label_keys),
        namespace(install),
        *manager_rbac(install.namespace),
        *daemon_rbac(install.namespace),
        *(metrics_rbac(install.namespace) if install.metrics_secure else []),
        *(own_node_policy(install.namespace) if admission_policy else []),
        *_webhook(install),
        *disruption_budget(install),
        manager(install),
        daemon(install),
    ]


def _webhook(install: Install) -> list[dict[str, Any]]:
    if not install.webhook:
        return []
    return webhook(
        install.namespace, serverless=install.serverless, cert_manager=install.cert_manager
    )


class _Dumper(yaml.SafeDumper):
    """Without aliases, and with texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def yaml_of(documents: Iterable[Any]) -> str:
    """The documents as people read them."""
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120)
    return text
