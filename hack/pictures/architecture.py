"""The architecture: users, manager, objects and daemon."""

from typing import NamedTuple

from pictures.drawing import box, svg, text


class Edge(NamedTuple):
    """A line through the points, with a label above its first part."""

    points: str
    label: str
    at: tuple[float, float]


# The columns from left to right: user and manager, objects of the API server, node.
OBJECTS = (
    ("PodProbeMarker", "selector, probes, policies", 70),
    ("Pod", "conditions, labels, annotations", 145),
    ("NodePodProbe.spec", "probes of this node", 220),
    ("NodePodProbe.status", "newest results", 295),
    ("Lease, Events", "of the daemon", 370),
)
EDGES = (
    Edge("160,82 348,82", "creates", (254, 74)),
    Edge("348,105 90,105 90,148", "watches; writes status", (250, 122)),
    Edge("210,175 348,175", "writes marks", (280, 167)),
    Edge("210,250 348,250", "writes probes", (280, 242)),
    Edge("348,325 210,325", "watches", (280, 317)),
    Edge("582,250 718,250", "watches", (650, 242)),
    Edge("718,325 582,325", "writes results", (650, 317)),
    Edge("718,395 582,395", "renews, records", (650, 387)),
)


def architecture() -> str:
    parts = [
        box(340, 20, 250, 425, "soft"), text(465, 44, "kube-apiserver", "title middle"),
        box(700, 190, 240, 355, "soft"), text(820, 214, "each node", "title middle"),
        box(20, 62, 140, 40), text(90, 87, "you", "title middle"),
        box(20, 150, 190, 270), text(115, 178, "manager", "title middle"),
        *(text(115, 210 + 46 * row, said, "middle",) for row, said in enumerate(("informer caches", "event mapping", "workqueues", "reconcilers"))),
        *(f'<path class="arrow" d="M115 {218 + 46 * row} v22"/>' for row in range(3)),
        text(115, 385, "nodes · pods · markers", "muted middle"), text(115, 404, "one leads, others stand by", "muted middle"),
        box(720, 230, 200, 190), text(820, 256, "daemon", "title middle"),
        *(text(820, 290 + 40 * row, said, "middle",) for row, said in enumerate(("supervisor, workers", "probers, threshold", "reporter, heartbeat"))),
        *(f'<path class="arrow" d="M820 {297 + 40 * row} v18"/>' for row in range(2)),
        '<path class="arrow" d="M760 420 v58"/>',
        text(772, 444, "exec through CRI", "muted"), text(772, 462, "http, tcp, grpc to the pod", "muted"),
        box(720, 480, 200, 48), text(820, 509, "containers of probed pods", "middle"),
    ]  # fmt: skip
    for name, content, y in OBJECTS:
        parts += [
            box(350, y - 14, 230, 54),
            text(465, y + 8, name, "title middle"),
            text(465, y + 28, content, "muted middle"),
        ]
    for each in EDGES:
        parts.append(f'<polyline class="arrow" points="{each.points}"/>')
        parts.append(
            text(
                *each.at,
                each.label,
                "muted middle",
            )
        )
    return svg(960, 565, "Architecture of kruise-probe", *parts)
