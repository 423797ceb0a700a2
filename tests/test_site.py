"""The site builds without a warning, and a reader without network misses nothing."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

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
    cells = [cell.strip() for line in text.splitlines() if line.startswith("| JOAO |") for cell in line.split("|")]
    shown = (site / "results/unsupervised/overview.html").read_text(encoding="utf-8")
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
def test_the_search_works_from_the_file_system(site):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=15000", "--dump-dom"]
    address = f"{(site / 'index.html').as_uri()}?q=Weisfeiler"
    done = subprocess.run([chromium, *options, address], capture_output=True, text=True, timeout=120)
    assert re.search(r"[1-9]\d* matching documents?", done.stdout)
