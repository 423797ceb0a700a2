"""Random forests on fingerprints and descriptors of molecules: what an encoder has to beat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from joao.core.errors import UserError
from joao.core.processes import map_chunks
from joao.data.molecules import parse_molecule, require_rdkit

NUM_BITS, RADIUS = 2048, 2
LARGEST = 1e30  # some descriptors grow exponentially with the number of atoms
# Chosen on validation molecules (BBBP, BACE, ClinTox; docs/results/molecule-tables.md); the defaults are weaker.
FOREST: dict[str, dict[str, Any]] = {
    "binary": {"n_estimators": 500, "min_samples_leaf": 2, "class_weight": "balanced"},
    "numbers": {"n_estimators": 500, "max_features": "sqrt"},
}
_ROWS_AT_ONCE = 128

Columns = dict[str, NDArray[np.float32]]


def molecule_columns(smiles: Sequence[str], names: Sequence[str], *, jobs: int = 1, missing: float = 0.0) -> Columns:
    """Compute columns for a forest, parsing every molecule once.

    - ``ecfp``: ``(M, 2048)`` ECFP4, how often each neighbourhood of up to two bonds occurs, hashed to 2048 columns,
      without chirality; counts above 255 are 255.
    - ``descriptors``: ``(M, D)`` all 2D descriptors of RDKit, between -1e30 and 1e30.

    Args:
        names: ``ecfp``, ``descriptors`` or both.
        missing: value of undefined descriptors.
    """
    require_rdkit()
    chunks = list(map_chunks(partial(_columns, names=tuple(names), missing=missing), smiles, jobs=jobs, size=256))
    for number, chunk in enumerate(chunks):
        if isinstance(chunk, int):
            row = 256 * number + chunk
            raise UserError(
                f"fingerprints: molecule {row}, '{smiles[row][:60]}', cannot be parsed by RDKit. Remove it."
            )
    empty = {"ecfp": np.zeros((0, NUM_BITS), np.float32), "descriptors": np.zeros((0, 1), np.float32)}
    tables = [chunk for chunk in chunks if not isinstance(chunk, int)]
    return {name: np.concatenate([each[name] for each in tables]) if tables else empty[name] for name in names}


def _columns(smiles: Sequence[str], names: Sequence[str], missing: float) -> Columns | int:
    """The columns of a chunk, or the number of a molecule that cannot be parsed."""
    from rdkit import rdBase
    from rdkit.Chem import Descriptors
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    generator = GetMorganGenerator(radius=RADIUS, fpSize=NUM_BITS)
    columns: dict[str, list[Any]] = {name: [] for name in names}
    with rdBase.BlockLogs():
        for row, text in enumerate(smiles):
            molecule = parse_molecule(text)
            if isinstance(molecule, str):
                return row
            if "ecfp" in columns:
                columns["ecfp"].append(np.minimum(generator.GetCountFingerprintAsNumPy(molecule), 255))
            if "descriptors" in columns:
                values = Descriptors.CalcMolDescriptors(molecule, missingVal=np.nan).values()
                columns["descriptors"].append(
                    np.clip(np.nan_to_num(np.array(list(values)), nan=missing), -LARGEST, LARGEST)
                )
    return {name: np.array(rows, dtype=np.float32) for name, rows in columns.items()}


@final
@dataclass(frozen=True, eq=False)
class Forests:
    """One random forest per task, as arrays: they are stored without pickles, and predict as scikit-learn's forests do.

    Attributes:
        kind: ``binary`` (predicts the probability of 1) or ``numbers``.
        constant: ``(T,)`` prediction of the tasks without a tree, whose training labels are all equal; else NaN.
        task: ``(trees,)`` task of each tree.
        root: ``(trees,)`` first node of each tree.
        left, right: ``(nodes,)`` next node for values up to the threshold, and for others; a leaf names itself.
        feature, threshold: ``(nodes,)`` the column to look at, and the largest value that goes left.
        value: ``(nodes,)`` prediction of a leaf.
        depth: number of decisions of the deepest tree.
        num_columns: number of columns to predict from.
    """

    kind: str
    constant: NDArray[np.float64]
    task: NDArray[np.int32]
    root: NDArray[np.int32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    value: NDArray[np.float64]
    depth: int
    num_columns: int

    @classmethod
    def fit(
        cls,
        columns: NDArray[np.float32],
        labels: NDArray[np.float32],
        kind: str,
        seed: int,
        settings: Mapping[str, Any] | None = None,
        jobs: int = 1,
    ) -> Self:
        """Grow a forest for every task on the rows that have its label.

        Args:
            columns: ``(G, d)``.
            labels: ``(G, T)``, NaN for missing labels. A task without labels predicts 0.
            settings: options of scikit-learn's forest; None: :data:`FOREST`.
        """
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        make = RandomForestClassifier if kind == "binary" else RandomForestRegressor
        settings = FOREST[kind] if settings is None else settings
        constant = np.full(labels.shape[1], np.nan)
        trees: list[tuple[int, Any]] = []
        for task, of_task in enumerate(labels.T):
            known = ~np.isnan(of_task)
            values = np.unique(of_task[known])
            if len(values) < 2:
                constant[task] = values[0] if len(values) else 0.0
                continue
            grown = make(**settings, random_state=seed, n_jobs=jobs).fit(columns[known], of_task[known])
            trees += [(task, tree.tree_) for tree in grown.estimators_]
        # scikit-learn numbers the nodes of each tree from 0; here they are numbered through all trees.
        sizes = [tree.node_count for _, tree in trees]
        roots = np.cumsum([0, *sizes])[:-1].astype(np.int32)
        leaf = np.concatenate([np.zeros(0, bool), *(tree.children_left < 0 for _, tree in trees)])
        own = np.arange(len(leaf), dtype=np.int32)

        def joined(name: str, dtype: type) -> NDArray[Any]:
            return np.concatenate([np.zeros(0), *(getattr(tree, name) for _, tree in trees)]).astype(dtype)

        first = np.repeat(roots, sizes)
        left, right = (
            np.where(leaf, own, joined(f"children_{side}", np.int32) + first).astype(np.int32)
            for side in ("left", "right")
        )
        value = np.concatenate([np.zeros(0), *(tree.value[:, 0, -1] for _, tree in trees)])
        return cls(
            kind=kind,
            constant=constant,
            task=np.array([task for task, _ in trees], dtype=np.int32),
            root=roots,
            left=left,
            right=right,
            feature=np.where(leaf, 0, joined("feature", np.int32)).astype(np.int32),
            threshold=joined("threshold", np.float64),
            value=value,
            depth=max((tree.max_depth for _, tree in trees), default=0),
            num_columns=columns.shape[1],
        )

    def predict(self, columns: NDArray[np.float32]) -> NDArray[np.float64]:
        """Predict ``(G, T)`` probabilities of 1 or numbers: the mean over the trees of a task."""
        if columns.shape[1] != self.num_columns:
            raise UserError(
                f"forest: was grown on {self.num_columns} columns, but there are {columns.shape[1]} now, because this "
                "RDKit has other descriptors. Use the version of RDKit that the model was trained with."
            )
        predicted = np.tile(self.constant, (len(columns), 1))
        for first in range(0, len(columns), _ROWS_AT_ONCE):
            rows = columns[first : first + _ROWS_AT_ONCE]
            # All rows walk down all trees together. A leaf names itself, so a row that has arrived there stays.
            node = np.tile(self.root, (len(rows), 1))
            for _ in range(self.depth):
                is_left = np.take_along_axis(rows, self.feature[node], axis=1) <= self.threshold[node]
                node = np.where(is_left, self.left[node], self.right[node])
            for task in np.unique(self.task):
                predicted[first : first + len(rows), task] = self.value[node[:, self.task == task]].mean(axis=1)
        return predicted

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the forests as tensors by name: all that :meth:`from_tensors` needs.

        A left child is the node after its parent, so it is not stored; a leaf has -1 as its column. ``number`` is the
        threshold of a decision or the value of a leaf.
        """
        is_leaf = self.right == np.arange(len(self.right))
        arrays = {
            "shape": np.array([self.num_columns], np.int64),
            "constant": self.constant,
            "task": self.task,
            "root": self.root,
            "right": self.right,
            "feature": np.where(is_leaf, -1, self.feature).astype(np.int16),
            "number": np.where(is_leaf, self.value, self.threshold),
        }
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], kind: str, num_tasks: int) -> Self:
        """Make forests of ``num_tasks`` tasks from untrusted tensors; a ValueError says what is wrong with them."""
        expected = {"shape": torch.int64, "constant": torch.float64, "task": torch.int32, "root": torch.int32}
        expected |= {"right": torch.int32, "feature": torch.int16, "number": torch.float64}
        types = {name: value.dtype for name, value in tensors.items()}
        if types != expected or any(value.dim() != 1 for value in tensors.values()):
            raise ValueError(f"forest: expected vectors {', '.join(expected)}")
        arrays = {name: value.numpy() for name, value in tensors.items()}
        constant, task, root, right = (arrays[name] for name in ("constant", "task", "root", "right"))
        feature, number, shape = arrays["feature"].astype(np.int32), arrays["number"], arrays["shape"]
        own = np.arange(len(right), dtype=np.int32)
        inner = feature >= 0
        # Every node but the roots is a child once, of an earlier node: so these are trees, and every walk ends.
        children = np.concatenate([root, own[inner] + 1, right[inner]])
        is_valid = (
            (len(shape), len(constant)) == (1, num_tasks)
            and len(task) == len(root)
            and len(feature) == len(number) == len(right)
            and np.array_equal(np.sort(children), own)
            # A right child comes after the left one; a leaf names itself.
            and bool((right[inner] > own[inner] + 1).all() and (right[~inner] == own[~inner]).all())
            and bool((feature < shape[0]).all() and (feature >= -1).all() and np.isfinite(number).all())
            # Every task has either a constant or trees.
            and bool(((task >= 0) & (task < num_tasks)).all() and not np.isinf(constant).any())
            and np.array_equal(np.isnan(constant), np.isin(np.arange(num_tasks), task))
        )
        if not is_valid:
            raise ValueError("forest: the nodes are not those of trees")
        level, depth = root[inner[root]], 0  # the nodes with children, level by level in all trees
        while len(level):
            below = np.concatenate([level + 1, right[level]])
            level, depth = below[inner[below]], depth + 1
        return cls(
            kind=kind,
            constant=constant,
            task=task,
            root=root,
            left=np.where(inner, own + 1, own),
            right=right,
            feature=np.where(inner, feature, 0),
            threshold=np.where(inner, number, 0.0),
            value=np.where(inner, 0.0, number),
            depth=depth,
            num_columns=int(shape[0]),
        )
