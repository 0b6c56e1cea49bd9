"""The problems that `kruise-probe status` reports, summarized for the live view."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from kruise_probe.inspection.link import LinkState
from kruise_probe.inspection.views import ProblemView, StatusView


class ProblemSummary(NamedTuple):
    """One problem of a marker on all its pods; `remedy` says what to do."""

    text: str
    remedy: str


def summaries(view: StatusView) -> Iterator[ProblemSummary]:
    """The problems that need action."""
    return summarized([(each.name, each.problems) for each in view.markers])


def summarized(found: Sequence[tuple[str, Sequence[ProblemView]]]) -> Iterator[ProblemSummary]:
    """One summary for each kind of problem of a marker. Problems that need no action are left out."""
    pods: dict[tuple[str, ProblemView], list[str]] = {}
    for marker, problems in found:
        for each in problems:
            if each.severity == LinkState.BROKEN or each.reason == "NoPods":
                common = msgspec.structs.replace(each, pod="", node="")
                pods.setdefault((marker, common), []).append(each.pod)
    for (marker, problem), names in pods.items():
        yield _summary(marker, problem, [each for each in names if each])


def _summary(marker: str, problem: ProblemView, pods: Sequence[str]) -> ProblemSummary:
    subject = f"{marker}#{problem.probe}" if problem.probe else marker
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    where = f" on {pods[0]}{more}" if pods else ""
    return ProblemSummary(f"{subject}{where}: {problem.message}", problem.remedy)
