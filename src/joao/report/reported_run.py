"""A run that the report describes, with whatever can be loaded of it, and the map of its embeddings."""

import importlib.util
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joao.config.methods import titles
from joao.config.recipe import METHODS, Recipe
from joao.core.errors import UserError, suggest, user_error_on_failure
from joao.core.randomness import derive_seed, numpy_generator
from joao.core.registry import check_value, make_record
from joao.data.dataset import Dataset
from joao.data.shards.shards import Shards
from joao.report.scores import find_score
from joao.runs.finetuning import FILE as FINETUNED
from joao.runs.finetuning import FinetuneInfo, read_finetune_json
from joao.runs.folder import Run, read_text
from joao.runs.trained import TrainedEncoder, load_run
from joao.training.metrics import EpochMetrics

MAP_KINDS = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
ENOUGH_FOR_OUTLIERS = 200
OUTLIERS, NEIGHBOURS, MOST_FOR_NEIGHBOURS = 8, 5, 20_000


class EmbeddingMap(NamedTuple):
    """Embeddings in the plane, and the nearest neighbours before the projection.

    Attributes:
        points: ``(G, 2)``.
        axes: description of the projection.
        neighbours: ``(G, k)`` the nearest other graphs, the nearest first; ``k`` is 0 in large data sets.
        outliers: the graphs with the largest mean distance to these, the farthest first; empty in small data sets.
    """

    points: NDArray[np.float64]
    axes: str
    neighbours: NDArray[np.int64]
    outliers: tuple[int, ...]


def check_map_kind(kind: str) -> None:
    """Raise an error if a projection is unknown or its package is not installed."""
    if kind not in MAP_KINDS:
        raise UserError(f"--map {kind}: unknown projection. {suggest(kind, MAP_KINDS)}")
    if kind == "umap" and importlib.util.find_spec("umap") is None:
        raise UserError("--map umap: needs the package umap-learn. Run 'pip install umap-learn', or use tsne.")


def embedding_map(embeddings: NDArray[np.float32], kind: str) -> EmbeddingMap:
    """Project ``(G, d)`` embeddings to two dimensions.

    Columns are standardised first, as for scoring. PCA is exact; t-SNE and UMAP start from PCA with a fixed seed. For
    many graphs, outliers are moved to the edge: points beyond the central 99 % by more than half of its extent.
    """
    deviation = embeddings.std(axis=0, dtype=np.float64)
    centred = (embeddings - embeddings.mean(axis=0, dtype=np.float64)) / np.where(deviation > 1e-12, deviation, 1)
    projection = EmbeddingMap(*_project(centred, kind), *find_neighbours(centred))
    if len(projection.points) < ENOUGH_FOR_OUTLIERS:
        return projection
    low, high = np.quantile(projection.points, [0.005, 0.995], axis=0)
    reach = (high - low).max() / 2
    points = projection.points.clip(low - reach, high + reach)
    count = int((points != projection.points).any(axis=1).sum())
    outliers = f"; {count} outlier{'s' if count > 1 else ''} drawn at the edge" if count else ""
    return projection._replace(points=points, axes=projection.axes + outliers)


def find_neighbours(centred: NDArray[np.float64]) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """The ``neighbours`` and ``outliers`` of :class:`EmbeddingMap`, by Euclidean distance."""
    count = min(NEIGHBOURS, len(centred) - 1)
    if not 0 < count < len(centred) <= MOST_FOR_NEIGHBOURS:
        return np.zeros((len(centred), 0), dtype=np.int64), ()
    from sklearn.neighbors import NearestNeighbors

    distances, neighbours = NearestNeighbors(n_neighbors=count).fit(centred).kneighbors()
    farthest = np.argsort(-distances.mean(axis=1), kind="stable")[: OUTLIERS if len(centred) >= 2 * OUTLIERS else 0]
    return neighbours.astype(np.int64), tuple(farthest.tolist())


def _project(centred: NDArray[np.float64], kind: str) -> tuple[NDArray[np.float64], str]:
    if kind == "pca" or len(centred) < 5:
        return principal_components(centred)
    seed = derive_seed(0, "map") % 2**32
    start = principal_components(centred, 50)[0]
    if kind == "tsne":
        from sklearn.manifold import TSNE

        perplexity = min(30.0, (len(start) - 1) / 3)
        init = "pca" if start.std(axis=0).any() and start.shape[1] > 1 else "random"
        points = TSNE(2, perplexity=perplexity, init=init, random_state=seed).fit_transform(start)
        return points.astype(np.float64), f"t-SNE, perplexity {perplexity:.0f}"
    neighbours = min(15, len(start) - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap warns that a seed means one thread, and about optional packages
        import umap

        points = umap.UMAP(n_neighbors=neighbours, random_state=seed).fit_transform(start)
    return np.asarray(points, dtype=np.float64), f"UMAP, {neighbours} neighbours"


def principal_components(centred: NDArray[np.float64], count: int = 2) -> tuple[NDArray[np.float64], str]:
    """The first ``count`` principal components of centred columns, and the share of variance of the first two.

    The sign of a component is chosen such that its largest entry is positive, so that equal embeddings give equal maps.
    """
    _, scale, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:count]
    largest = abs(directions).argmax(axis=1)
    directions = directions * np.where(directions[np.arange(len(directions)), largest] < 0, -1, 1)[:, None]
    points = centred @ directions.T
    points = np.pad(points, ((0, 0), (0, max(0, 2 - points.shape[1]))))
    total = float((scale**2).sum())
    share = 100 * (scale[:2] ** 2).sum() / total if total else 100.0
    return points, f"PCA, {share:.0f} % of the variance"


@dataclass(frozen=True, eq=False)
class ShownGraphs:
    name: str
    sample: Dataset  # all graphs, or some of a large data set
    numbers: NDArray[np.int64]  # (G,) their indices in the data set
    total: int  # the size of the data set
    fingerprints: tuple[str, ...]  # of the data set; a store of several shards has two, its own and that of its graphs
    of_run: bool  # whether the run was trained or fine-tuned on them

    @property
    def key(self) -> str:
        return self.fingerprints[0]


class Finetuned(NamedTuple):
    """The content of ``finetune.json``."""

    scores: Mapping[str, Any]
    info: FinetuneInfo
    is_ensemble: bool


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """A run, finished or not."""

    name: str  # on the page
    run: Run
    metrics: Sequence[EpochMetrics]  # of the epochs so far
    score: dict[str, Any] | None  # the record of ``joao evaluate``
    trained: TrainedEncoder | None
    why_not_trained: str  # the reason if the encoder cannot be loaded
    graphs: ShownGraphs | None
    why_not_graphs: str  # the reason if there are none
    map: EmbeddingMap | None  # None if encoder or graphs are not available
    finetuned: Finetuned | None

    @property
    def method(self) -> str:
        """The name of its method; empty if the recipe is not that of a known method."""
        return method_of(self.run.recipe) if not self.run.info.own else ""

    @property
    def title(self) -> str:
        """The name of its method for people."""
        recipe = self.run.recipe
        if not self.run.info.pretrained:
            return "untrained encoder"
        parts = f"{recipe.objective.name}, {recipe.policy.name}, {recipe.heads.name}".replace("_", " ")
        return titles().get(self.method, self.method or parts)

    @property
    def data(self) -> str:
        """The name of the graphs it was trained on or, if it was fine-tuned, fine-tuned on."""
        return self.run.info.data if self.finetuned is None else self.finetuned.info.data

    @property
    def command_words(self) -> str:
        return shlex.quote(str(self.run.folder))


def open_reported_run(
    path: Path,
    name: str,
    read: Callable[[str, Mapping[str, Any]], Dataset | Shards],
    most_graphs: int,
    kind: str = "pca",
    replacement: Dataset | None = None,
) -> ReportedRun:
    """Open a run folder or export with its metrics, scores, encoder and graphs.

    Missing parts are recorded in ``why_not_trained`` and ``why_not_graphs``; only an invalid run is an error.

    Args:
        read: reads the graphs of the run; its arguments are those of :func:`joao.read`.
        most_graphs: larger data sets are sampled.
        kind: one of :data:`MAP_KINDS`.
        replacement: graphs to show instead of those of the run.
    """
    run = Run.open(path)
    trained, why_not_trained = _load_encoder(run)
    finetuned = _load_finetuned(run)
    graphs, why_not_graphs = _load_graphs(run, finetuned, read, most_graphs, replacement)
    return ReportedRun(
        name=name,
        run=run,
        metrics=epochs_so_far(run),
        score=find_score(run, () if graphs is None else graphs.fingerprints),
        trained=trained,
        why_not_trained=why_not_trained,
        graphs=graphs,
        why_not_graphs=why_not_graphs,
        map=None if trained is None or graphs is None else embedding_map(trained.embed(graphs.sample).numpy(), kind),
        finetuned=finetuned,
    )


def display_names(paths: Sequence[Path]) -> list[str]:
    """The names of runs on the page: the last part of their paths, or the whole path if that is ambiguous.

    >>> display_names([Path("runs/one"), Path("old/one"), Path("runs/two")])
    ['runs/one', 'old/one', 'two']
    """
    last = [path.resolve().name for path in paths]
    names = [name if last.count(name) == 1 else str(path) for path, name in zip(paths, last, strict=True)]
    for path, name in zip(paths, names, strict=True):
        if names.count(name) > 1:
            raise UserError(f"{path}: was given twice. Give every run once.")
    return names


def epochs_so_far(run: Run) -> list[EpochMetrics]:
    """The metrics of all epochs; for an unfinished run, without a last line that is incomplete."""
    if run.info.finished:
        return run.metrics()
    lines = (read_text(run.folder, "metrics.jsonl") or "").splitlines()
    return run.metrics(len(lines) - bool(lines and not lines[-1].endswith("}")))


def method_of(recipe: Recipe) -> str:
    """The method that a recipe is an instance of; empty if there is none.

    >>> from joao.config.recipe import make_recipe
    >>> method_of(make_recipe({"method": "joaov2"})), method_of(make_recipe({"heads": "no_head"}))
    ('joaov2', '')
    """
    several = len({part.name for part in recipe.augmentations}) < len(recipe.augmentations)
    for method, parts in METHODS.items():
        same = all(parts[family] == getattr(recipe, family).name for family in ("objective", "policy", "heads"))
        if same and several == ("strengths" in parts):
            return method
    return ""


def _load_encoder(run: Run) -> tuple[TrainedEncoder | None, str]:
    if not run.info.finished:
        return None, f"The run is not finished. {run.resume_hint()}"
    try:
        return load_run(run.folder, device="cpu"), ""
    except UserError as error:
        return None, str(error)


def _load_graphs(
    run: Run,
    finetuned: Finetuned | None,
    read: Callable[[str, Mapping[str, Any]], Dataset | Shards],
    most_graphs: int,
    replacement: Dataset | None,
) -> tuple[ShownGraphs | None, str]:
    """The graphs to show: those given or, if they can be read and have not changed, those of the run."""
    trained_on = run.info if finetuned is None else finetuned.info
    source, columns = run.recipe.data, run.recipe.columns
    if finetuned is not None:
        source, columns = finetuned.info.source, dict(finetuned.info.columns)
        if run.info.standardised:
            columns["standardise"] = True
    fix = f"Show them with: joao report {shlex.quote(str(run.folder))} DATA"
    opened: Dataset | Shards
    if replacement is not None:
        opened = replacement
    elif not source:
        return None, f"The run does not record where its graphs ({trained_on.data}) are. {fix}"
    else:
        try:
            opened = read(source, columns)
        except UserError as error:
            return None, f"The graphs of the run were not found: {error}"
    dataset = opened if isinstance(opened, Dataset) else opened.whole()
    if replacement is None and not dataset.has_fingerprint(trained_on.fingerprint):
        return None, f"The data set {dataset.name} has changed since the run was trained. {fix}"
    fingerprints = tuple(dict.fromkeys([dataset.store_fingerprint, dataset.fingerprint]))
    numbers = np.arange(len(dataset))
    if len(dataset) > most_graphs:
        numbers = np.sort(numpy_generator(0, "report").choice(len(dataset), most_graphs, replace=False))
    sample = dataset if len(numbers) == len(dataset) else dataset.subset(numbers)
    of_run = trained_on.fingerprint in fingerprints
    return ShownGraphs(dataset.name, sample, numbers, len(dataset), fingerprints, of_run), ""


def _load_finetuned(run: Run) -> Finetuned | None:
    if read_text(run.folder, FINETUNED) is None:
        return None
    place, fields = run.folder / FINETUNED, read_finetune_json(run.folder)[1]
    with user_error_on_failure(f"{place}: is damaged or not the finetune.json of a run"):
        scores = check_value(fields.get("scores", {}), Mapping[str, Any], f"{place}: scores")
        info = make_record(FinetuneInfo, fields.get("info"), f"{place}: info", allow_unknown=True)
        is_ensemble = not fields["fit"]["epochs"]
    return Finetuned(scores, info, is_ensemble)
