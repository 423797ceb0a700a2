"""The site builds without a warning, and a reader without network misses nothing."""

import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.reporting.page.chromium import Page as Browser
from tests.reporting.page.chromium import program

pytest.importorskip("mkdocs")

ROOT = Path(__file__).parent.parent


class Page(HTMLParser):
    """What a page loads, where it leads and what can be led to."""

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
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
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


def test_every_link_leads_to_a_place_on_the_site(pages):
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


def test_every_page_and_table_is_there(site):
    for folder in ("docs", "results"):
        for path in (ROOT / folder).rglob("*.md"):
            place = path.relative_to(ROOT / "docs" if folder == "docs" else ROOT).with_suffix(".html")
            assert (site / place).is_file(), path


def test_tables_are_those_of_the_records(site):
    text = (ROOT / "results/unsupervised/overview.md").read_text(encoding="utf-8")
    lines = [line.replace("**", "") for line in text.splitlines() if line.startswith("| JOAO |")]
    cells = [cell.strip() for line in lines for cell in line.split("|")]
    shown = (site / "results/unsupervised/overview.html").read_text(encoding="utf-8")
    shown = re.sub("</?strong>", "", shown)
    assert len(cells) > 5
    assert [cell for cell in cells if cell and f">{cell}<" not in shown] == []


def test_docstrings_become_plain():
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
def test_a_browser_searches_it_from_the_file_system_and_asks_for_nothing(site, tmp_path):
    browser = Browser(tmp_path)
    try:
        for place in ("index.html", "api.html", "results/unsupervised/table.html"):
            browser.open(site / place)
        browser.click("[data-md-component=search-query]")
        browser.call("Input.insertText", text="Weisfeiler")
        end = time.monotonic() + 30
        while not (found := browser.ask("document.querySelectorAll('.md-search-result__item').length")):
            assert time.monotonic() < end
            time.sleep(0.1)
        places = browser.ask("[...document.querySelectorAll('.md-search-result__item a')].map(e => e.href)")
    finally:
        browser.close()
    assert found
    assert any("methods/baselines.html" in place for place in places)
    assert [address for address in browser.requests if not address.startswith(("file:", "data:", "about:"))] == []
    assert browser.complaints == []
