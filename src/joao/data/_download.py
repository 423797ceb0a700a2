"""Fetches a TU data set into the cache of the user.

Over https alone, also where the server sends elsewhere. The hash of what came first is kept beside it, in
``NAME.zip.sha256``; a file that is another one later, on the server or in the cache, is not taken.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import IO, Any

from joao.data.cache import home
from joao.errors import UserError
from joao.files import write_file

ADDRESS = "https://www.chrsmrrs.com/graphkerneldatasets/{name}.zip"
SCHEMES = ("https",)
MOST_BYTES = 1 << 32
_TIMEOUT_SECONDS = 30.0
_AT_ONCE = 1 << 20  # bytes


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a server to other addresses that are as safe."""

    def redirect_request(self, request: Any, file: Any, code: int, message: str, headers: Any, address: str) -> Any:
        _check_scheme(address)
        return super().redirect_request(request, file, code, message, headers, address)


def cache_folder() -> Path:
    """Where downloaded data sets are kept: ``tu`` in :func:`joao.data.cache.home`."""
    return home() / "tu"


def download(name: str) -> Path:
    """Fetches data set ``name``; it appears in the cache whole or not at all.

    Raises:
        UserError: with the reason only; the caller knows what to advise.
    """
    address = ADDRESS.format(name=name)
    path = cache_folder() / f"{name}.zip"
    try:
        _check_scheme(address)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as aside:
            part = Path(aside) / path.name
            opener = urllib.request.build_opener(_Redirects())
            with opener.open(address, timeout=_TIMEOUT_SECONDS) as answer, part.open("wb") as file:
                _copy(address, answer, file)
            if not zipfile.is_zipfile(part):  # a cut-off file lacks the directory at its end
                raise UserError(f"{address} did not give a whole zip file")
            check_recorded(path, part)
            os.replace(part, path)
    except urllib.error.HTTPError as error:
        error.close()
        raise UserError(f"{address} answered {error.code} ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise UserError(f"{address} could not be fetched ({reason})") from error
    return path


def check_recorded(path: Path, content: Path | None = None) -> None:
    """Compares a downloaded file, or the ``content`` to put there, with its record; without one, that is made."""
    record = path.with_name(f"{path.name}.sha256")
    with (content or path).open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    known = record.read_text(encoding="ascii", errors="replace").split()[:1] if record.is_file() else []
    if not known:
        write_file(record, f"{found}  {path.name}\n")
    elif known != [found]:
        raise UserError(
            f"{path} is not the file that was downloaded first: its SHA-256 is {found}, that of {record.name} is "
            f"{known[0][:80]}. If the new one is right, remove {record}"
        )


def _check_scheme(address: str) -> None:
    if address.partition(":")[0].lower() not in SCHEMES:
        raise UserError(f"{address} is not fetched: only {', '.join(SCHEMES)} is safe")


def _copy(address: str, answer: Any, file: IO[bytes]) -> None:
    """Writes an answer of at most :data:`MOST_BYTES`."""
    left = MOST_BYTES
    while piece := answer.read(_AT_ONCE):
        left -= len(piece)
        if left < 0:
            raise UserError(f"{address} gives more than {MOST_BYTES >> 30} GB")
        file.write(piece)
