"""Generated responses: the verdicts of our probers are those of the kubelet's, but for the differences that we document.

`KRUISE_PROBE_RESPONSES=20000 KRUISE_PROBE_SEED=7` generates more of them, and others.
"""

import asyncio
import os
from collections import Counter

import pytest
from contract.probers.generated import HOST, KINDS, Kind, Verdict, servers
from contract.probers.real_kubelet import BUILD_SECONDS, Kubelet
from support.output import print_line

from kruise_probe.api.messages import normalise_message

RESPONSES = int(os.environ.get("KRUISE_PROBE_RESPONSES", "400"))
SEED = os.environ.get("KRUISE_PROBE_SEED", "1")

pytestmark = pytest.mark.timeout(BUILD_SECONDS + RESPONSES)


def expected(theirs: Verdict) -> Verdict:
    """Our verdict on a response whose verdict by the kubelet is `theirs`."""
    if theirs.result == "none":
        # The body is truncated or malformed: the kubelet keeps the old state, see docs/differences.md.
        return theirs._replace(result="failure", message="")
    message = normalise_message(theirs.message.encode(errors="surrogateescape"))
    compared = theirs.result in ("success", "warning")
    return theirs._replace(message=message if compared else "")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_verdicts_on_generated_responses_are_the_kubelets(
    kubelet: Kubelet, kind: Kind
) -> None:
    results: Counter[str] = Counter()
    different: list[str] = []
    async with servers(kind) as pool:
        for first in range(0, RESPONSES, len(pool)):
            for number, server in enumerate(pool):
                server.response = kind.generate(f"{SEED} {first + number}")
            probes = [kind.probe(server.port) for server in pool]
            outcomes = await asyncio.to_thread(
                kubelet.probe_all, HOST, probes, kind.timeout_seconds
            )
            theirs = []
            for server, outcome in zip(pool, outcomes, strict=True):
                result = "none" if outcome["error"] else outcome["result"]
                theirs.append(server.verdict(result, outcome["message"]))
                results[result] += 1
            ours = await kind.verdicts(pool)
            for server, their, our in zip(pool, theirs, ours, strict=True):
                if our != expected(their) and not kind.is_documented(server.response, their, our):
                    different.append(f"{server.response}: {their}, ours {our}")
    responses = f"{RESPONSES} responses of seed {SEED}"
    print_line(f"{responses}: {dict(results)}, {len(different)} differences")
    assert not different, "\n".join(different[:10])
