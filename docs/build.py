"""Build the documentation site: ``python docs/build.py [FOLDER]`` (default: site).

Zensical reads pages from one folder, but some of ours are elsewhere in the repository (ARCHITECTURE.md and others).
This script copies all pages into a scratch project, adapts their links, expands patterns in the navigation and runs
Zensical there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
ROOT_PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
FILES = ("*.md", "*.png", "*.css", "*.js", "*.svg")
# A code block, inline code or a link. Code is matched first, so that links inside it stay as they are.
_CODE_OR_LINK = re.compile(
    r"^ *```.*?^ *```$|`[^`\n]+`(?!\])|\[((?:[^\]`]|`[^`]*`)*)\]\(([^)#\s]+)(#[^)]*)?\)", re.M | re.S
)


def source_files() -> dict[str, Path]:
    """Path on the site -> file in the repository."""
    files = {path.relative_to(DOCS).as_posix(): path for kind in FILES for path in sorted(DOCS.rglob(kind))}
    return files | {name: ROOT / name for name in ROOT_PAGES} | {"examples.md": ROOT / "examples/README.md"}


def adapt_links(markdown: str, address: str, files: dict[str, Path]) -> str:
    """Point links at pages of the site; a link to a file that is not on the site, such as code, becomes plain text."""
    addresses = {path: name for name, path in files.items()}
    home = files[address].parent

    def adapt(found: re.Match[str]) -> str:
        text, link, anchor = found.groups()
        if link is None or "://" in link:
            return found[0]
        target = (home / link).resolve()
        if target in addresses:
            relative = os.path.relpath(addresses[target], os.path.dirname(address) or ".")
            return f"[{text}]({relative}{anchor or ''})"
        # Zensical reports links to files that do not exist.
        return text if target.exists() and target.is_relative_to(ROOT) else found[0]

    return _CODE_OR_LINK.sub(adapt, markdown)


def expand_navigation(settings: str, pages: list[str]) -> str:
    """Replace each pattern by the matching pages that are not listed yet."""
    listed = {page for page in pages if f'"{page}"' in settings}

    def expand(found: re.Match[str]) -> str:
        pattern = re.escape(found[1]).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
        matching = [page for page in pages if re.fullmatch(pattern, page) and page not in listed]
        listed.update(matching)
        return ", ".join(f'"{page}"' for page in matching)

    return re.sub(r'"([\w/-]*\*[^"]*)"', expand, settings)


def build(folder: Path) -> int:
    """Write the site to ``folder`` and return Zensical's exit code. Warnings are errors."""
    files = source_files()
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch)
        (project / "src").symlink_to(ROOT / "src")
        shutil.copy(DOCS / "plain_docstrings.py", project)
        settings = (DOCS / "zensical.toml").read_text(encoding="utf-8")
        pages = sorted(address for address in files if address.endswith(".md"))
        (project / "zensical.toml").write_text(expand_navigation(settings, pages), encoding="utf-8")
        for address, path in files.items():
            copy = project / "docs" / address
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix != ".md":
                shutil.copy(path, copy)
                continue
            markdown = adapt_links(path.read_text(encoding="utf-8"), address, files)
            if address.startswith("results/"):
                markdown = f"---\nhide: [toc]\n---\n\n{markdown}"  # wide tables
            # The contents of the API page show the whole name, as its headings do.
            markdown = re.sub(r"^(::: (\S+))$", r"\1\n    options:\n      toc_label: \2\n", markdown, flags=re.M)
            copy.write_text(markdown, encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode == 0:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(project / "site", folder)
        else:
            sys.stderr.buffer.write(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site").resolve()))
