"""A hook of the site: it has documents of the repository and tables made from records beside the pages of this folder.

Pages link to one another as they lie in the repository, so that they can be read there, too. Here such links are
turned to where the page is on the site; a link to something that is not on it, such as code, becomes its text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

DOCS = Path(__file__).parent
ROOT = DOCS.parent
DOCUMENTS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
# Code, as a block or in a line, or a link.
_CODE_OR_LINK = re.compile(
    r"^ *```.*?^ *```$|`[^`\n]+`(?!\])|\[((?:[^\]`]|`[^`]*`)*)\]\(([^)#\s]+)(#[^)]*)?\)", re.M | re.S
)


def on_files(files: Any, config: Any) -> Any:
    """Adds what lies outside of this folder."""
    records = (path for kind in ("md", "png") for path in sorted((ROOT / "results").rglob(f"*.{kind}")))
    for path in [*(ROOT / name for name in DOCUMENTS), *records]:
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turns links to where pages are on the site; tables of results have the width of the page for themselves."""
    place = page.file.src_uri
    if place.startswith("results/"):
        page.meta["hide"] = ["toc"]
    home = (ROOT if place in DOCUMENTS or place.startswith("results/") else DOCS) / place

    def turned(found: re.Match[str]) -> str:
        text, link, anchor = found.groups()
        if link is None or "://" in link:
            return found[0]
        target = (home.parent / link).resolve()
        if not target.exists() or not target.is_relative_to(ROOT):
            return found[0]  # which the build then complains about
        uri = target.relative_to(DOCS if target.is_relative_to(DOCS) else ROOT).as_posix()
        if files.get_file_from_path(uri) is None:
            return text
        return f"[{text}]({os.path.relpath(uri, os.path.dirname(place) or '.')}{anchor or ''})"

    return _CODE_OR_LINK.sub(turned, markdown)
