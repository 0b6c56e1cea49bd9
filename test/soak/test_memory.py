"""The manager's memory with ten thousand pods of 4.8 KB: its peak during the initial list, and its growth under churn."""

import asyncio
import os
from pathlib import Path
from random import Random

import pytest
from soak.conftest import Limits
from soak.forms import forms
from support import programs
from support.background import background
from support.control_plane import ControlPlane, in_pod, staged
from support.hollow import node_name, pod_name, probe, run_concurrently
from support.managers import all_marked
from support.output import print_line
from support.programs import ALONE
from support.target import pod_path

NODES = 200
PODS = 10_000
SHORT_NODES = 20
SHORT_PODS = 300
PADDING_BYTES = 2_000
"""With what the API server adds, 4.8 KB of JSON."""

MOST_MB = 120.0
SHORT_MOST_MB = 60.0
CHURN_SECONDS = 1_800.0
ROUND_PODS = 50
"""Pods that are replaced together."""
ROUND_SECONDS = 2.0
"""For each round: a pace that any machine keeps, so that runs compare."""
SAMPLES = 15
GROWTH_MB = 4.0
"""Over the last two thirds of the churn: in the first the allocator's pools lose the order of the initial list."""


@forms(short="300-pods-in-60-MB", long="10000-pods-half-an-hour-in-120-MB")
@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace, as a pod has one, needs root")
async def test_d8_memory_under_churn_stays_within_bounds(
    control_plane: ControlPlane, random: Random, short: bool, limits: Limits, tmp_path: Path
) -> None:
    nodes = SHORT_NODES if short else NODES
    pods = SHORT_PODS if short else PODS
    most_mb = SHORT_MOST_MB if short else MOST_MB
    churn_seconds = 3.0 if short else CHURN_SECONDS
    async with staged(control_plane, "memory") as stage:
        hollow = stage.hollow
        await hollow.add_nodes(nodes)
        await hollow.add_pods(pods, nodes=nodes, padding_bytes=PADDING_BYTES)
        pod = await stage.api.client.request_raw("GET", pod_path("pod-1", "memory"))
        await hollow.add_marker(probe())
        account = await in_pod(control_plane, stage.api, tmp_path)

        async def replace_pods() -> None:
            numbers = random.sample(range(pods), ROUND_PODS)
            await run_concurrently(hollow.remove_pod(pod_name(number)) for number in numbers)
            await run_concurrently(
                hollow.add_pod(
                    number,
                    node=node_name(number % nodes),
                    padding_bytes=PADDING_BYTES,
                )
                for number in numbers
            )
            # Else this process would keep every version of every pod.
            stage.api.pods.history.clear()

        async with programs.running("manager", account, tmp_path, ALONE) as manager:
            await manager.ready()
            async with background(stage.daemons.follow()):
                await all_marked(stage, seconds=600)
            used_mb = manager.rss_mb
            peak_mb = manager.peak_mb
            print_line(
                f"{pods} pods of {len(pod)} bytes: {used_mb:.0f} MB, at most {peak_mb:.0f} MB"
            )
            assert peak_mb <= most_mb
            loop = asyncio.get_running_loop()
            began = loop.time()
            rounds = 0
            samples = [manager.rss_mb]
            async with background(stage.daemons.follow()):
                while loop.time() < began + churn_seconds:
                    rounds += 1
                    await replace_pods()
                    round_ends_at = began + rounds * ROUND_SECONDS
                    await asyncio.sleep(max(round_ends_at - loop.time(), 0.0))
                    next_sample_at = began + len(samples) * churn_seconds / SAMPLES
                    if loop.time() >= next_sample_at:
                        samples.append(manager.rss_mb)
            peak_mb = manager.peak_mb
            replaced = rounds * ROUND_PODS
            listed = " ".join(f"{sample:.0f}" for sample in samples)
            print_line(f"{replaced} pods replaced: {listed} MB, at most {peak_mb:.0f} MB")
            grown_mb = samples[-1] - samples[len(samples) // 3]
            limits.check(f"churn adds at most {GROWTH_MB:g} MB", grown_mb <= GROWTH_MB)
            assert peak_mb <= most_mb
