"""The documentation site builds without warnings and works without a network."""

import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.report.chromium import Page as Browser
from tests.report.chromium import program

pytest.importorskip("zensical", reason="the site needs zensical: pip install -e '.[docs]'")

ROOT = Path(__file__).parent.parent


class Page(HTMLParser):
    """The files that a page loads, its links and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.leads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "src" in given:
            self.loads.append(given["src"])
        if "href" in given:
            (self.leads if tag == "a" else self.loads).append(given["href"])
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, ROOT / "docs/build.py", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def is_remote(address):
    return re.match(r"(\w+:)?//", address) is not None


def test_nothing_is_loaded_from_the_network(site, pages):
    loaded = {address for page in pages.values() for address in page.loads}
    assert any("iframe-worker" in address for address in loaded)  # the search needs it
    assert [address for address in loaded if is_remote(address)] == []
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        addresses = re.findall(r"url\(['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", text)
        assert [each for pair in addresses for each in pair if is_remote(each)] == []


def test_every_link_has_a_target(pages):
    missing = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in [*page.loads, *page.leads]:
            address, _, anchor = unquote(link).partition("#")
            if is_remote(address) or address.startswith(("mailto:", "data:")):
                continue
            target = (path.parent / address).resolve() if address else path
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                missing.append((path.name, link))
    assert missing == []


def test_every_page_is_on_the_site_and_in_the_navigation(site, pages):
    linked = {(site / link.partition("#")[0]).resolve() for link in pages[site / "index.html"].leads}
    for path in (ROOT / "docs").rglob("*.md"):
        page = (site / path.relative_to(ROOT / "docs")).with_suffix(".html")
        assert page.is_file(), path
        assert page.resolve() in linked, path


def test_every_api_heading_is_the_name_to_import(site):
    names = re.findall(r"^::: (\S+)$", (ROOT / "docs/api.md").read_text(encoding="utf-8"), re.MULTILINE)
    page = (site / "api.html").read_text(encoding="utf-8")
    headings = re.findall(r"<h3 id=[^>]*>(.*?)</h3>", page, re.DOTALL)
    words = [re.sub(r"<[^>]*>", " ", heading).split() for heading in headings]
    assert len(names) > 40
    assert [name for name, found in zip(names, words, strict=True) if name not in found] == []
    contents = re.findall(r'<a href="#[^"]*" class="md-nav__link">(.*?)</a>', page, re.DOTALL)
    assert set(names) <= {re.sub(r"<[^>]*>", "", entry).strip() for entry in contents}


def test_docstrings_are_converted_to_markdown():
    griffe = pytest.importorskip("griffe")
    assert griffe
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from plain_docstrings import plain
    finally:
        sys.path.pop(0)
    text = "See :class:`~joao.JOAO`:\n\n.. math::\n    x^2\n\n>>> 1 + 1\n2\n>>> 3\n3\n\nThe end.\n\n.. math:: y\n"
    expected = "See `joao.JOAO`:\n\n    x^2\n\n```pycon\n>>> 1 + 1\n2\n>>> 3\n3\n\n```\n\nThe end.\n\n    y\n"
    assert plain(text) == expected


@pytest.mark.slow
@pytest.mark.skipif(program() is None, reason="no Chromium on this machine")
def test_search_works_from_the_file_system_without_requests(site, tmp_path):
    results = "[...document.querySelectorAll('*')].map(e => e.shadowRoot).filter(Boolean)"
    browser = Browser(tmp_path)
    try:
        for place in ("index.html", "api.html", "methods/index.html"):
            browser.open(site / place)
        browser.click(".md-search__button")
        end = time.monotonic() + 30
        while not browser.ask(f"{results}.some(root => root.activeElement)"):
            assert time.monotonic() < end
            time.sleep(0.1)
        browser.call("Input.insertText", text="Weisfeiler")
        while "Kernels and other baselines" not in browser.ask(f"{results}.map(root => root.textContent).join(' ')"):
            assert time.monotonic() < end
            time.sleep(0.1)
    finally:
        browser.close()
    assert [address for address in browser.requests if not address.startswith(("file:", "data:", "about:"))] == []
    assert browser.complaints == []
