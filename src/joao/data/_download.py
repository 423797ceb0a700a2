"""Fetches a TU data set into the cache of the user."""

from __future__ import annotations

import http.client
import os
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from joao.data.cache import home
from joao.errors import UserError

ADDRESS = "https://www.chrsmrrs.com/graphkerneldatasets/{name}.zip"
_TIMEOUT_SECONDS = 30.0


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
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as aside:
            part = Path(aside) / path.name
            with urllib.request.urlopen(address, timeout=_TIMEOUT_SECONDS) as answer, part.open("wb") as file:
                shutil.copyfileobj(answer, file)
            if not zipfile.is_zipfile(part):  # a cut-off file lacks the directory at its end
                raise UserError(f"{address} did not give a whole zip file")
            os.replace(part, path)
    except urllib.error.HTTPError as error:
        error.close()
        raise UserError(f"{address} answered {error.code} ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise UserError(f"{address} could not be fetched ({reason})") from error
    return path
