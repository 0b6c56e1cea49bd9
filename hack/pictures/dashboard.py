"""The layout of the dashboard."""

import re
from typing import Any

from monitoring.dashboard import dashboard

from pictures.drawing import box, svg, text


def layout() -> str:
    """The dashboard's panels, where its JSON places them. There are no curves: nothing measured them here."""
    panels: list[dict[str, Any]] = dashboard()["panels"]
    column, row = 39.0, 22.0
    height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels) * row + 20
    parts = []
    for each in panels:
        place = each["gridPos"]
        x, y = 12 + place["x"] * column, 10 + place["y"] * row
        width, tall = place["w"] * column - 8, place["h"] * row - 8
        parts += [box(x, y, width, tall, "soft"), text(x + 12, y + 22, each["title"], "title")]
        characters = int(width / 7.4)
        lines = _wrapped(each["description"], characters)
        parts += [
            text(x + 12, y + 40 + 16 * index, line, "muted") for index, line in enumerate(lines)
        ]
        legends = [
            query["legendFormat"] for query in each["targets"] if query["legendFormat"] != "__auto"
        ]
        legend = " · ".join(re.sub(r"{{(\w+)}}", r"<\1>", each) for each in legends)
        if tall > 120:
            lines = _wrapped(f"{_unit(each)} {legend}".strip(), characters)
            top = y + tall + 4 - 16 * len(lines)
            parts += [
                text(x + 12, top + 16 * index, line, "muted ours")
                for index, line in enumerate(lines)
            ]
    return svg(960, int(height), "Panels of the Grafana dashboard", *parts)


def _unit(panel: dict[str, Any]) -> str:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    return {"short": "", "s": "seconds:", "ops": "per second:"}.get(unit, f"{unit}:")


def _wrapped(said: str, width: int) -> list[str]:
    lines = [""]
    for word in said.split():
        lines[-1:] = (
            [f"{lines[-1]} {word}".strip()]
            if len(lines[-1]) + len(word) < width
            else [lines[-1], word]
        )
    return lines
