"""Load a saved estimator of any class."""

from pathlib import Path

from joao.estimators.classifier import JOAOClassifier
from joao.estimators.joao import JOAO
from joao.estimators.regressor import JOAORegressor
from joao.runs.finetuning import read_label_kind
from joao.runs.folder import Run
from joao.runs.trained import model_path


def load(model: str | Path, *, device: str = "auto") -> JOAO | JOAOClassifier | JOAORegressor:
    """Load a fitted estimator from a run folder, a file written by ``joao export``, or a bundled model.

    Args:
        model: path of the folder or file, or the name of a model that comes with the package.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or one GPU such as ``cuda:1``.

    Returns:
        A :class:`joao.JOAO` for a pre-trained encoder. For a fine-tuned model, a :class:`joao.JOAORegressor` if it
        predicts numbers, otherwise a :class:`joao.JOAOClassifier`.

    >>> import joao
    >>> joao.load("molecules", device="cpu").encoder_.num_dimensions
    2560
    """
    path = model_path(model)
    if not Run.open(path).info.finetuned_on:
        return JOAO.load(path, device=device)
    estimator = JOAORegressor if read_label_kind(path) in JOAORegressor.kinds else JOAOClassifier
    return estimator.load(path, device=device)
