"""Parts of an SVG picture: the paper, text and boxes, in the colors of the site."""

from html import escape

# Every picture has its own paper, so it is legible on a page in either mode. Readers in dark mode get dark paper.
STYLE = """
svg { --paper: #ffffff; --soft: #eef2f7; --ink: #1f2328; --muted: #57606a; --line: #8c959f; --ours: #2563c9; --other: #9a6700; --good: #1a7f37; --bad: #b42318 }
@media (prefers-color-scheme: dark) {
  svg { --paper: #0f141a; --soft: #1d2632; --ink: #e6edf3; --muted: #a2adb8; --line: #7d8792; --ours: #6ea8ff; --other: #e0a94a; --good: #57c773; --bad: #ff7b72 }
}
text { font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink) }
.paper { fill: var(--paper) } .soft { fill: var(--soft); stroke: var(--line) } .box { fill: var(--paper); stroke: var(--ours) }
.title { font-weight: 600 } .muted { fill: var(--muted); font-size: 12px } .middle { text-anchor: middle } .end { text-anchor: end }
.ours { fill: var(--ours) } .other { fill: var(--other) } .arrow { stroke: var(--ink); fill: none; marker-end: url(#tip) }
.good { fill: var(--good) } .bad { fill: var(--bad) } .dim { fill: var(--muted) }
.screen text { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre } .bold { font-weight: 700 }
"""
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="var(--ink)"/></marker>'
)


def svg(width: int, height: int, title: str, *parts: str, style: str = "") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n<defs>{TIP}</defs>\n"
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def text(
    x: float,
    y: float,
    said: str,
    style: str = "",
) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{style}">{escape(said)}</text>'


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    style: str = "box",
) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{style}"/>'
    )
