"""Faults on demand, for tests: refusals, latency, silent and broken watches; and counters of requests.

Source: none.
Differs: not a port.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kruise_probe.playground.apiserver.failures import Failure


class Asked(NamedTuple):
    """A request as faults and counters see it; `subresource` is part of `resource`: `pods/status`."""

    verb: str
    resource: str
    namespace: str
    name: str


@dataclass
class _Planned:
    verb: str
    resource: str
    failure: Failure
    times: int | None
    when: Callable[[Asked], bool] | None

    def takes(self, asked: Asked) -> bool:
        return (
            self.verb in ("", asked.verb)
            and self.resource in ("", asked.resource)
            and (self.when is None or self.when(asked))
        )


@dataclass
class Faults:
    """What is to go wrong, and what went on.

    Attributes:
        latency_seconds: every answer waits that long.
        requests: how many requests there were, by (verb, resource, code).
        peak_in_flight: most requests under way at once, watches not counted.
    """

    latency_seconds: float = 0.0
    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    in_flight: int = 0
    peak_in_flight: int = 0
    _planned: list[_Planned] = field(default_factory=list)

    def fail(
        self,
        *,
        code: int,
        reason: str = "InternalError",
        message: str = "an error that a test asked for",
        verb: str = "",
        resource: str = "",
        times: int | None = 1,
        when: Callable[[Asked], bool] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        """Refuses the next requests that fit; `times` None means all of them until `heal`.

        Verbs are get, list, watch, create, update, patch, delete, deletecollection; an empty verb or
        resource fits all.
        """
        details = {} if retry_after_seconds is None else {"retryAfterSeconds": retry_after_seconds}
        failure = Failure(code, reason, message, details=details)
        self._planned.append(_Planned(verb, resource, failure, times, when))

    def heal(self) -> None:
        """Forgets every planned refusal and the latency."""
        self._planned.clear()
        self.latency_seconds = 0.0

    def check(self, asked: Asked) -> None:
        """Raises the planned refusal for this request, if there is one.

        Raises:
            Failure: as planned.
        """
        for planned in self._planned:
            if planned.takes(asked):
                if planned.times is not None:
                    planned.times -= 1
                    if not planned.times:
                        self._planned.remove(planned)
                raise planned.failure

    def count(self, verb: str = "", resource: str = "", code: int = 0) -> int:
        """How many requests there were; an empty verb or resource, or code 0, counts all."""
        return sum(
            number
            for (each_verb, each_resource, each_code), number in self.requests.items()
            if verb in ("", each_verb)
            and resource in ("", each_resource)
            and code in (0, each_code)
        )
