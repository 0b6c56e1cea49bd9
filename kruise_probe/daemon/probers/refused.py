"""A probe that is not run, because it asks for more than a probe may: its outcome is a failure that says why.

Source: Kruise's webhook, which refuses `host`; its daemon dials it.
Differs: this is the daemon's own defence, for whatever way such a probe came into a NodePodProbe.
"""

from typing import Final

from kruise_probe.daemon.probers.messages import clean_message
from kruise_probe.daemon.probers.prober import Outcome, Prober, Target, Verdict

_HOST: Final = (
    "HostNotAllowed: {field} is set to {host!r}, and probes go to the pod's own IP only; remove it, "
    "and send a Host header if the server needs one"
)


class RefusedProber(Prober):
    """Fails each time with the same message; nothing is sent anywhere."""

    def __init__(self, message: str) -> None:
        self._outcome = Outcome(Verdict.FAILURE, clean_message(message))

    async def run(self, target: Target) -> Outcome:
        return self._outcome


def refused_host(field: str, host: str) -> RefusedProber:
    """`field` is the path of the field, such as `httpGet.host`."""
    return RefusedProber(_HOST.format(field=field, host=host))
