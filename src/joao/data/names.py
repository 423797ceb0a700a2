"""Data sets by name: where they are looked for, and how TU data sets are downloaded.

Downloads use https only, also after redirects. The SHA-256 of the first download is stored next to the file
(``NAME.zip.sha256``); a file that differs later, on the server or on disk, is refused.
"""

import difflib
import hashlib
import http.client
import os
import re
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from joao.core.errors import UserError
from joao.core.files import as_path, open_regular, read_regular, user_path, write_file
from joao.data.cache import cache_root
from joao.data.formats import PACKED_SUFFIXES, TABLE_SUFFIXES, known_suffix
from joao.data.formats.ogb import archive_stems, dataset_name, is_ogb
from joao.data.formats.tu import is_tu

# fmt: off
TU_DATASETS = (
    "AIDS", "BZR", "BZR_MD", "COIL-DEL", "COIL-RAG", "COLLAB", "COLORS-3", "COX2", "COX2_MD", "Cuneiform",
    "DBLP_v1", "DD", "deezer_ego_nets", "DHFR", "DHFR_MD", "ENZYMES", "ER_MD", "facebook_ct1", "facebook_ct2",
    "Fingerprint", "FIRSTMM_DB", "FRANKENSTEIN", "github_stargazers", "highschool_ct1", "highschool_ct2",
    "IMDB-BINARY", "IMDB-MULTI", "infectious_ct1", "infectious_ct2", "KKI", "Letter-high", "Letter-low",
    "Letter-med", "MCF-7", "MCF-7H", "MOLT-4", "MOLT-4H", "MSRC_21", "MSRC_21C", "MSRC_9", "MUTAG", "Mutagenicity",
    "NCI-H23", "NCI-H23H", "NCI1", "NCI109", "OHSU", "OVCAR-8", "OVCAR-8H", "P388", "P388H", "PC-3", "PC-3H",
    "Peking_1", "PROTEINS", "PROTEINS_full", "PTC_FM", "PTC_FR", "PTC_MM", "PTC_MR", "REDDIT-BINARY",
    "REDDIT-MULTI-12K", "REDDIT-MULTI-5K", "reddit_threads", "SF-295", "SF-295H", "SN12C", "SN12CH", "SW-620",
    "SW-620H", "SYNTHETIC", "SYNTHETICnew", "Synthie", "TRIANGLES", "tumblr_ct1", "tumblr_ct2", "twitch_egos",
    "TWITTER-Real-Graph-Partial", "UACC257", "UACC257H", "Yeast", "YeastH",
)
# fmt: on
BUNDLED = Path(__file__).parent / "bundled"
ADDRESS = "https://www.chrsmrrs.com/graphkerneldatasets/{name}.zip"
SCHEMES = ("https",)
MAX_DOWNLOAD_BYTES = 1 << 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_TU_FOLDERS = ("", "tu", "tu_dev", "TUDataset")
_MOLECULE_FOLDERS = ("molecules", "molecules_dev")
_OGB_FOLDER = "ogb"
_TIMEOUT_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20


def resolve_path(source: str | os.PathLike[str], root: str | os.PathLike[str] | None) -> Path:
    """Return the path of a data set given by name or path; downloads a TU data set that is not found."""
    as_path(source, "data")
    text = os.fspath(source)
    if isinstance(source, str) and _NAME.fullmatch(source):
        return _find(source, _root_folder(root))
    if not text:
        raise UserError("the name of the data set is empty. Give a name or a path.")
    return user_path(text)


def list_datasets(root: str | os.PathLike[str] | None = None) -> list[str]:
    """List the names that :func:`joao.read` finds without a download."""
    folder = _root_folder(root)
    entries = _entries(*_tu_folders(folder), BUNDLED, download_folder())
    names = {entry.stem if entry.suffix == ".zip" else entry.name for entry in entries if is_tu(entry)}
    names |= {*_molecule_files(folder), *_ogb_datasets(folder)}
    return sorted((name for name in names if _NAME.fullmatch(name)), key=str.casefold)


def ogb_path(source: str, root: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the folder or zip file of an OGB data set, given by name or path; None for other formats."""
    path = resolve_path(source, root)
    return path if path.exists() and is_ogb(path) else None


def suggest_file(path: Path) -> str:
    """Suggest a similar name in the folder of a missing file, as a sentence; empty if there is none."""
    entries = islice(path.parent.iterdir(), 1000) if path.parent.is_dir() else ()
    names = [entry.name for entry in entries if entry.name != path.name]  # itself: a link to a missing file
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
    return f" Did you mean {path.parent / close[0]}?" if close else ""


def _root_folder(root: str | os.PathLike[str] | None) -> Path | None:
    path = os.fspath(root) if root is not None else os.environ.get("JOAO_DATA")
    if not path:
        return None
    folder = user_path(path)
    if not folder.is_dir():
        raise UserError(f"{'data root' if root is not None else 'JOAO_DATA'}: {folder} is not a folder.")
    return folder


def _entries(*folders: Path | None) -> Iterator[Path]:
    return (entry for folder in folders if folder and folder.is_dir() for entry in sorted(folder.iterdir()))


def _tu_folders(root: Path | None) -> list[Path]:
    return [] if root is None else [root / folder for folder in _TU_FOLDERS]


def _molecule_files(root: Path | None) -> dict[str, Path]:
    """Tables of molecules and packed files under ``root``, by their names without suffixes."""
    files: dict[str, Path] = {}
    for path in _entries(*(root / folder for folder in _MOLECULE_FOLDERS)) if root is not None else ():
        suffix = known_suffix(path)
        if suffix in (*TABLE_SUFFIXES, *PACKED_SUFFIXES):
            files.setdefault(path.name[: -len(suffix)], path)
    return files


def _ogb_datasets(root: Path | None) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for entry in _entries(root / _OGB_FOLDER, root) if root is not None else ():
        if (entry.suffix == ".zip" or entry.is_dir()) and is_ogb(entry):
            paths.setdefault(dataset_name(entry), entry)
    return paths


def _find(name: str, root: Path | None) -> Path:
    if name.startswith("ogbg-"):
        return _find_ogb(name, root)
    candidates = [path for folder in _tu_folders(root) for path in (folder / f"{name}.zip", folder / name)]
    candidates += [BUNDLED / f"{name}.zip", Path(name)]
    candidates += [folder / f"{name}.zip"] if (folder := download_folder()) else []
    if name in (molecules := _molecule_files(root)):
        return molecules[name]
    for path in candidates:
        if path.is_file() if path.suffix == ".zip" else path.is_dir() and (path == Path(name) or is_tu(path)):
            if path.parent == folder:
                check_download_hash(path)
            return path
    return Path(name) if Path(name).is_file() else _download_or_explain(name, root)


def _find_ogb(name: str, root: Path | None) -> Path:
    if path := _ogb_datasets(root).get(name):
        return path
    archives = " or ".join(f"{stem}.zip" for stem in archive_stems(name))
    raise UserError(
        f"{name}: not found {_searched(root)}. Put OGB's archive or folder ({archives}) into ROOT/{_OGB_FOLDER} and "
        "give ROOT with JOAO_DATA or --data-root."
    )


def _searched(root: Path | None) -> str:
    return f"under {root}" if root is not None else "(JOAO_DATA is not set)"


def _download_or_explain(name: str, root: Path | None) -> Path:
    close = _suggest_name(name, root)
    try:
        if close is not None and _normalize(close) == _normalize(name):
            raise UserError("a known data set has a similar name")
        if name not in TU_DATASETS:  # do not send an arbitrary text, such as a confidential structure, to a server
            raise UserError("it is not a TU data set that can be downloaded")
        return download(name)
    except UserError as error:
        guess = suggest_file(Path(name)) or (f" Did you mean '{close}'?" if close else "")
        raise UserError(
            f"{name}: data set not found {_searched(root)}, and {error}.{guess} "
            f"To use a copy, put it at ROOT/{name}.zip and give ROOT with JOAO_DATA or --data-root."
        ) from error


def _suggest_name(name: str, root: Path | None) -> str | None:
    """The known name most similar to ``name``; None if ``name`` is known or nothing is similar."""
    if name in TU_DATASETS:
        return None
    known = {_normalize(other): other for other in (*TU_DATASETS, *list_datasets(root))}
    close = difflib.get_close_matches(_normalize(name), known, n=1)
    return known[close[0]] if close else None


def _normalize(name: str) -> str:
    return re.sub("[-_]", "", name).casefold()


def download_folder() -> Path | None:
    """Folder of downloaded data sets; None if there is no home folder."""
    root = cache_root()
    return None if root is None else root / "tu"


def download(name: str) -> Path:
    """Download TU data set ``name`` into the cache; an interrupted download leaves nothing behind.

    Raises:
        UserError: with the reason only, as a part of the caller's sentence.
    """
    address, folder = ADDRESS.format(name=name), download_folder()
    if folder is None:
        raise UserError("there is no home folder for downloads: set HOME or JOAO_CACHE")
    path = folder / f"{name}.zip"
    try:
        _check_scheme(address)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
            part = Path(temporary) / path.name
            opener = urllib.request.build_opener(_SafeRedirects())
            with opener.open(address, timeout=_TIMEOUT_SECONDS) as answer, part.open("wb") as file:
                while piece := answer.read(_CHUNK_BYTES):
                    file.write(piece)
                    if file.tell() > MAX_DOWNLOAD_BYTES:
                        raise UserError(f"{address} sends more than {MAX_DOWNLOAD_BYTES >> 30} GB")
            if not zipfile.is_zipfile(part):  # a truncated file lacks the directory at its end
                raise UserError(f"{address} did not return a complete zip file")
            check_download_hash(path, part)
            os.replace(part, path)
    except urllib.error.HTTPError as error:
        error.close()
        raise UserError(f"{address} returned {error.code} ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise UserError(f"{address} could not be downloaded ({reason})") from error
    return path


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects to other schemes than https."""

    def redirect_request(self, request: Any, file: Any, code: int, message: str, headers: Any, address: str) -> Any:
        _check_scheme(address)
        return super().redirect_request(request, file, code, message, headers, address)


def _check_scheme(address: str) -> None:
    if address.partition(":")[0].lower() not in SCHEMES:
        raise UserError(f"{address} is not downloaded: only {', '.join(SCHEMES)} is allowed")


def check_download_hash(path: Path, content: Path | None = None) -> None:
    """Compare a downloaded file, or its new ``content``, with the stored hash; store the hash if there is none."""
    record = path.with_name(f"{path.name}.sha256")
    with open_regular(content or path) as stream:
        own_hash = hashlib.file_digest(stream, "sha256").hexdigest()
    known = read_regular(record).decode("ascii", "replace").split()[:1] if record.is_file() else []
    if not known:
        write_file(record, f"{own_hash}  {path.name}\n")
    elif known != [own_hash]:
        raise UserError(
            f"{path} differs from the first download: its SHA-256 is {own_hash}, but {record.name} has "
            f"{known[0][:80]}. If the new file is correct, remove {record}"
        )
