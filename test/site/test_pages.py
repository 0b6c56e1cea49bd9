"""Every page of the documentation site, as a browser shows it."""

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
import pytest_asyncio
from aiohttp import web
from support import chromium
from support.cases import cases
from support.pages import ROOT
from support.shell import run

from kruise_probe.inspection.link import address_of

DOCS = ROOT / "docs"
PREFIX = "/kruise-probe"  # as on GitHub Pages
PAGES = [str(file.relative_to(DOCS).with_suffix("")) for file in sorted(DOCS.rglob("*.md"))]
WIDTHS = (390, 768, 1280, 1440, 1920)
DESKTOP = 1280
VERSIONS = ("0.2.0", "0.1.0", "dev")
# What is wider than the window or its own column. An element that scrolls inside is not.
TOO_WIDE = """
(() => {
  const width = document.documentElement.clientWidth;
  const scrolls = element => element && (["auto", "scroll"].includes(getComputedStyle(element).overflowX) || scrolls(element.parentElement));
  const wide = [...document.querySelectorAll("article table, article pre, article img, article p, article li")]
    .filter(element => element.getBoundingClientRect().right > width + 1 && !scrolls(element.parentElement) && !scrolls(element));
  const all = document.documentElement.scrollWidth;
  return [...(all > width ? [`the page: ${all} px`] : []), ...wide.map(element => `${element.tagName}: ${element.innerText.slice(0, 60)}`)];
})()
"""
# A cell with one or two letters in each line cannot be read.
NARROW_CELLS = """
[...document.querySelectorAll("article td")]
  .filter(element => element.innerText.length > 20 && element.getBoundingClientRect().width < 90 && element.getBoundingClientRect().height > 150)
  .map(element => element.innerText.slice(0, 60))
"""
# No cell, no table, no diagram and no entry of the contents hides its end.
CUT = """
[...document.querySelectorAll("article :is(td, th, .md-typeset__scrollwrap, pre:not(:has(.gp)) code), .md-ellipsis")]
  .filter(element => element.scrollWidth > element.clientWidth + 1)
  .filter(element => !element.matches("code") || /[─│┌▶]/.test(element.innerText))
  .map(element => element.innerText.slice(0, 60))
"""
# The search is an application of its own, below a shadow root.
SEARCH = """(selector => [...document.querySelectorAll("*")].filter(element => element.shadowRoot)
  .flatMap(element => [...element.shadowRoot.querySelectorAll(selector)]))"""

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(chromium.program() is None, reason="Chromium is not installed"),
]


class Site(NamedTuple):
    folder: Path
    url: str
    browser: chromium.BrowserTab

    def page(self, name: str) -> str:
        return f"{self.url}/dev/{name}.html"

    def has(self, path: str) -> bool:
        return (self.folder / path.removeprefix(f"{PREFIX}/")).is_file()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("site")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(folder: Path) -> AsyncIterator[Site]:
    for version in VERSIONS:
        command = f"{ROOT}/hack/docs {folder} {version}"
        built = await run(command, kubeconfig=folder / "none", folder=folder)
        assert built.code == 0, built.out + built.err

    async def serve(request: web.Request) -> web.FileResponse:
        """As GitHub Pages: 404.html for an address that does not exist."""
        file = folder / request.match_info["path"]
        if file.is_file():
            return web.FileResponse(file)
        return web.FileResponse(folder / "404.html", status=404)

    application = web.Application()
    application.router.add_get(PREFIX + "/{path:.*}", serve)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        server = web.TCPSite(runner, "127.0.0.1", 0)
        await server.start()
        host, port = runner.addresses[0][:2]
        async with chromium.browser() as page:
            yield Site(folder, f"http://{host}:{port}{PREFIX}", page)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_fits_each_width_without_errors(site: Site, name: str) -> None:
    for width in WIDTHS:
        await site.browser.open(site.page(name), width)
        for defects in (TOO_WIDE, NARROW_CELLS, CUT):
            assert await site.browser.evaluate(defects) == [], width
        assert site.browser.problems == [], width


async def test_the_page_of_a_wrong_address_has_its_style_a_search_and_three_links(
    site: Site,
) -> None:
    wrong = site.page("no/such/page")
    await site.browser.open(wrong, DESKTOP)
    assert all(wrong in problem for problem in site.browser.problems)
    header = "getComputedStyle(document.querySelector('.md-header')).position"
    assert await site.browser.evaluate(header) == "sticky"
    links = await site.browser.evaluate(
        "[...document.querySelectorAll('article li a')].map(link => link.pathname)"
    )
    assert len(links) == 3
    for link in links:
        assert site.has(link)
    await site.browser.evaluate("document.querySelector('article button').click()")
    await site.browser.until(f"{SEARCH}('input').length")


async def test_the_address_of_a_reason_that_explain_prints_leads_to_it(site: Site) -> None:
    path = urlsplit(address_of("NoPods")).path.removeprefix(PREFIX)
    await site.browser.open(f"{site.url}{path}#nopods", DESKTOP)
    await site.browser.until("document.querySelector('#nopods:target')")
    assert await site.browser.evaluate("location.pathname") == f"{PREFIX}/{VERSIONS[0]}{path}"


@cases("name others", english=("index", "zh/"), chinese=("zh/index", "index"))
async def test_the_menu_has_the_pages_of_the_readers_language(
    site: Site, name: str, others: str
) -> None:
    await site.browser.open(site.page(name), DESKTOP)
    menu = await site.browser.evaluate(
        "[...document.querySelectorAll('.md-nav--primary a.md-nav__link')].map(link => link.href)"
    )
    assert len(menu) >= 4
    assert len([link for link in menu if f"/dev/{others}" in link]) == 1


@pytest.mark.parametrize("name", PAGES)
async def test_every_link_within_the_site_leads_to_a_page_and_an_anchor(
    site: Site, name: str
) -> None:
    page = f"/dev/{name}.html"
    links = re.findall(r'<a [^>]*?href="([^"]*)"', (site.folder / page[1:]).read_text())
    assert len(links) > 10
    broken = []
    for link in set(map(html.unescape, links)):
        path, anchor = urldefrag(urljoin(page, link))
        if urlsplit(path).netloc:
            continue
        target = site.folder / path[1:]
        if not target.is_file() or (anchor and unquote(anchor) not in _anchors(target)):
            broken.append(link)
    assert broken == []


@cases(
    "start word found",
    english=("index", "ProbeDaemonStale", "reasons"),
    chinese=("zh/index", "仪表盘", "install"),
)
async def test_the_search_finds_a_page_by_a_word_in_it(
    site: Site, start: str, word: str, found: str
) -> None:
    await site.browser.open(site.page(start), DESKTOP)
    await site.browser.evaluate("document.querySelector('.md-search__button').click()")
    await site.browser.until(f"{SEARCH}('input').length")
    await site.browser.call("Input.insertText", text=word)
    await site.browser.until(f"{SEARCH}('a[href*={found}]').length")


async def test_a_page_has_copy_buttons_an_edit_link_a_picture_and_versions_releases_first(
    site: Site,
) -> None:
    await site.browser.open(site.page("install"), DESKTOP)
    assert await site.browser.until("document.querySelectorAll('.tabbed-block button').length") == 6
    edit = await site.browser.evaluate("document.querySelector('a[rel=edit]').href")
    assert edit == "https://github.com/kruise-probe/kruise-probe/edit/main/docs/install.md"
    picture = "document.querySelector('meta[property=\"og:image\"]').content"
    path = urlsplit(await site.browser.evaluate(picture)).path
    assert path.endswith(".png")
    assert site.has(path)
    menu = (
        "[...document.querySelectorAll('.md-version__link')].map(link => link.textContent.trim())"
    )
    versions = await site.browser.until(f"(x => x.length && x)({menu})")
    assert versions == list(VERSIONS)


def _anchors(page: Path) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', page.read_text()))
