"""A prober for probes that are not allowed: every attempt is a failure with the reason.

Source: Kruise's webhook, which refuses `host`; its daemon dials it.
Differs: the daemon also refuses such probes, because a NodePodProbe may be written without the webhook.
"""

from typing import Final

from kruise_probe.daemon.probers.messages import clean_message
from kruise_probe.daemon.probers.prober import Outcome, Prober, Target, Verdict

_HOST: Final = (
    "HostNotAllowed: {field} is set to {host!r}, and probes go to the pod's own IP only; remove it, "
    "and send a Host header if the server needs one"
)


class RefusedProber(Prober):
    """Fails every attempt with the same message and sends nothing."""

    def __init__(self, message: str) -> None:
        self._outcome = Outcome(Verdict.FAILURE, clean_message(message))

    async def run(self, target: Target) -> Outcome:
        return self._outcome


def refused_host(field: str, host: str) -> RefusedProber:
    """A prober for a probe with a `host`. `field` is its path, such as `httpGet.host`."""
    return RefusedProber(_HOST.format(field=field, host=host))
