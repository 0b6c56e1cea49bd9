"""What hack/docs does before and after Zensical builds the site.

`prepare CHECKOUT VERSION` writes the metadata and the tabs of each page, and the address of this version, into a copy of the checkout.
`finish FOLDER` writes versions.json, index.html, reasons.html and 404.html of a folder with all versions, and the languages of each search.
"""

import html
import json
import re
import shutil
import sys
import textwrap
from pathlib import Path

DESCRIPTION_LETTERS = 160
GITHUB = "https://github.com/kruise-probe/kruise-probe/blob/main/docs/"
ALTERNATIVES = re.compile(r"(?:^```sh\n.+\n```\n\n){2,}", re.M)
"""Commands of one line with nothing between them."""


def prepare(checkout: Path, version: str) -> None:
    """Write the front matter that GitHub would show as a table, so the pages themselves have none."""
    docs = checkout / "docs"
    for page in docs.rglob("*.md"):
        # The chart's README has absolute addresses, as registries show it too.
        text = page.read_text().replace(f"]({GITHUB}", "](")
        metadata = {"description": describe(text)}
        if page.is_relative_to(docs / "zh"):
            metadata["language"] = "zh"
        lines = "".join(f"{key}: {json.dumps(metadata[key])}\n" for key in metadata)
        page.write_text(f"---\n{lines}---\n{ALTERNATIVES.sub(tabs, text)}")
    configuration = checkout / "zensical.toml"
    text = configuration.read_text()
    configuration.write_text(
        re.sub(
            r'^(site_url = ".*/)"$',
            rf'\g<1>{version}/"',
            text,
            flags=re.M,
        )
    )


def tabs(found: re.Match[str]) -> str:
    """Show commands of which one is enough as tabs with the names of their programs."""
    return "".join(
        f'=== "{command.split()[0]}"\n\n    ```sh\n    {command}\n    ```\n\n'
        for command in re.findall(r"```sh\n(.+)\n", found[0])
    )


def describe(text: str) -> str:
    """Return the first paragraph without its markup, cut at a word."""
    paragraphs = re.sub(
        r"<!--.*?-->",
        "",
        text,
        flags=re.DOTALL,
    ).split("\n\n")
    prose = next(
        paragraph for paragraph in paragraphs if re.match(r"[A-Za-z`\u4e00-\u9fff]", paragraph)
    )
    plain = re.sub(
        r"!?\[([^]]*)\]\([^)]*\)",
        r"\1",
        " ".join(prose.split()),
    )
    plain = re.sub(r"[`*]", "", plain)
    return textwrap.shorten(plain, DESCRIPTION_LETTERS, placeholder=" …")


def finish(folder: Path) -> None:
    found = [path.parent.name for path in folder.glob("*/sitemap.xml")]
    released = [name for name in found if re.fullmatch(r"\d+\.\d+\.\d+", name)]
    released.sort(
        key=lambda name: [int(part) for part in name.split(".")],
        reverse=True,
    )
    versions = released + sorted(set(found) - set(released))
    entries = [{"version": name, "title": name, "aliases": []} for name in versions]
    (folder / "versions.json").write_text(json.dumps(entries))
    newest = html.escape(versions[0])
    for page in ("index.html", "reasons.html"):  # `explain` prints addresses of reasons.html
        (folder / page).write_text(
            '<!doctype html><meta charset="utf-8"><title>kruise-probe</title>'
            f'<script>location.replace("{newest}/{page}" + location.hash)</script><a href="{newest}/{page}">kruise-probe</a>\n'
        )
    # With this language the search finds a Chinese word within a sentence, not only at its beginning.
    for name in versions:
        index = folder / name / "search.json"
        index.write_text(
            index.read_text().replace(
                '"lang":["en"]',
                '"lang":["en","zh"]',
                1,
            )
        )
    # GitHub Pages shows this file for every address that does not exist.
    shutil.copy(folder / versions[0] / "404.html", folder / "404.html")


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]), sys.argv[3])
    else:
        finish(Path(sys.argv[2]))
