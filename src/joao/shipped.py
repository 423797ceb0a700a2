"""The models that come with the package."""

from __future__ import annotations

from pathlib import Path

from joao.errors import UserError, nearest

PRETRAINED = Path(__file__).parent / "pretrained"


def shipped_names() -> list[str]:
    """Their names."""
    return sorted(path.stem for path in PRETRAINED.glob("*.safetensors"))


def shipped(name: str) -> Path:
    """The file of the one called ``name``."""
    known = shipped_names()
    if name not in known:
        cure = nearest(name, known) if known else "None comes with this version; make one with 'joao export'."
        raise UserError(f"unknown pre-trained model '{name}'. {cure}")
    return PRETRAINED / f"{name}.safetensors"


def model_path(model: str | Path) -> Path:
    """The folder or file that ``model`` is or, where there is none, the model of the package that it names."""
    path = Path(model)
    return shipped(str(model)) if not path.exists() and str(model) in shipped_names() else path
