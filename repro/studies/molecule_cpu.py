"""How fast are molecules embedded from SMILES on one CPU core, and what does bf16-mixed change in training?

    python -m repro.studies.molecule_cpu zinc250k.csv.xz,chembl_part.csv.xz

One thread, CPU time; the ways of a data set take turns. "Atom by atom" is the encoder's forward pass in batches of
20,000 nodes and edges, as it was used for embeddings before.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from joao.config.recipe import make_recipe
from joao.data.formats.smiles import read_text_column
from joao.data.molecules import ReadOptions, featurise, make_molecules
from joao.encoders import Encoder
from joao.evaluation.tables import markdown
from joao.runs.pretraining import pretrain
from joao.runs.trained import TrainedEncoder, bundled_model_path, load_run
from joao.training.model import batches_by_size
from repro.studies.common import generated, make_page, origin, publish, with_range
from repro.studies.molecule_speed import parse

EMBEDDING, BEFORE = "embedding from SMILES", "embedding from SMILES, atom by atom"
PRECISIONS = ("32-true", "bf16-mixed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data")
    parser.add_argument("--molecules", type=int, default=4096)
    parser.add_argument("--trained-on", type=int, default=1024, help="molecules of an epoch of pre-training")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    trained = load_run(bundled_model_path("molecules"), device="cpu")
    rows = [measure(name, trained, arguments.molecules, arguments.repeats) for name in arguments.data.split(",")]
    record = {
        "rows": rows,
        "pre-training": measure_training(rows[0]["data"], arguments.trained_on, arguments.repeats),
        **origin(),
    }
    publish("molecule-cpu", record, page)


def sample(name: str, count: int) -> list[str]:
    smiles = read_text_column(Path(os.environ["JOAO_DATA"]) / "molecules" / name, "smiles")
    return [smiles[place] for place in np.random.default_rng(0).permutation(len(smiles))[:count]]


def measure(name: str, trained: TrainedEncoder, count: int, repeats: int) -> dict[str, Any]:
    smiles, found = sample(name, count), dict[str, torch.Tensor]()

    def embed(way: str) -> None:
        dataset = make_molecules(name, smiles, options=ReadOptions(as_ogb=way == EMBEDDING))
        found[way] = trained.embed(dataset) if way == EMBEDDING else by_forward(trained.encoder, trained.store(dataset))

    ways: dict[str, Callable[[], object]] = {
        "RDKit's parsing": lambda: parse(smiles),
        "ECFP from SMILES": lambda: fingerprints(smiles),
        "graphs from SMILES": lambda: featurise(smiles),
        EMBEDDING: lambda: embed(EMBEDDING),
        BEFORE: lambda: embed(BEFORE),
    }
    rates = take_turns(ways, len(smiles), repeats)
    change = (found[EMBEDDING] - found[BEFORE]).norm(dim=1) / found[BEFORE].norm(dim=1)
    return {"data": name, "molecules": len(smiles), "rates": rates, "largest relative change": float(change.max())}


@torch.no_grad()
def by_forward(encoder: Encoder, store: Any) -> torch.Tensor:
    batches = batches_by_size(store, torch.arange(len(store)), 20_000)
    return torch.cat([encoder(store.batch(graphs)) for graphs in batches])


def fingerprints(smiles: list[str]) -> None:
    from rdkit import Chem
    from rdkit.Chem import rdFingerprintGenerator

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    for text in smiles:
        generator.GetFingerprintAsNumPy(Chem.MolFromSmiles(text))


def measure_training(name: str, count: int, repeats: int) -> dict[str, Any]:
    dataset = make_molecules(name, sample(name, count))
    recipe = make_recipe({"training": {"epochs": 1}}, kind="molecules")
    ways: dict[str, Callable[[], object]] = {
        precision: lambda precision=precision: pretrain(recipe, dataset, device="cpu", precision=precision)  # type: ignore[misc]
        for precision in PRECISIONS
    }
    pretrain(recipe, make_molecules(name, dataset.smiles[:64]), device="cpu", precision=PRECISIONS[1])  # imports
    return {"molecules": len(dataset), "rates": take_turns(ways, len(dataset), repeats)}


def take_turns(ways: dict[str, Callable[[], object]], count: int, repeats: int) -> dict[str, list[float]]:
    """Molecules per CPU second of each way in each turn."""
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, work in ways.items():
            before = time.process_time()
            work()
            rates[way].append(count / (time.process_time() - before))
    return rates


def ratio(rates: dict[str, list[float]], one: str, other: str) -> str:
    """Median and range of the ratios inside the turns."""
    return with_range(np.array(rates[one]) / np.array(rates[other]), middle=np.median)


def page(record: dict[str, Any]) -> str:
    rows, training = record["rows"], record["pre-training"]
    lines = [[way, *(with_range(each["rates"][way], ",.0f", np.median) for each in rows)] for way in rows[0]["rates"]]
    lines.append(["embedding over atom by atom", *(ratio(each["rates"], EMBEDDING, BEFORE) for each in rows)])
    lines.append(["largest relative change", *(f"{each['largest relative change']:.1e}" for each in rows)])
    heads = [f"{each['data'].partition('.')[0]}, {each['molecules']:,} molecules" for each in rows]
    trained = [[name, with_range(rates, ",.0f", np.median)] for name, rates in training["rates"].items()]
    trained.append(["bf16-mixed over 32-true", ratio(training["rates"], *reversed(PRECISIONS))])
    return make_page(
        "Molecules on a CPU",
        f"{generated('molecule_cpu')} {record['machine']['processor']}, one thread. Molecules "
        "per CPU second: median (range) of turns. The encoder is the bundled one.",
        markdown(["", *heads], lines),
        f"Pre-training JOAO on the plain path, one epoch of {training['molecules']:,} molecules, default encoder:",
        markdown(["precision", "molecules per CPU second"], trained),
    )


if __name__ == "__main__":
    main()
