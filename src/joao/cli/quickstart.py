from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from joao.cli._options import AsJson, Device, Quiet
from joao.cli._output import Output, free_path
from joao.cli._reading import all_cores, open_data, whole


def quickstart(
    out: Annotated[Path, typer.Option(help="Folder of the run; a number is added if it exists.")] = Path(
        "runs/quickstart"
    ),
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Do everything once, on the data set inside the package: pre-train, score, embed, draw.

    MUTAG, 188 molecules; no download; less than a minute on two cores.
    """
    from joao.cli._training import summary, train
    from joao.cli.evaluate import score
    from joao.data.sources import BUNDLED
    from joao.experiment import pretrain
    from joao.files import write_file
    from joao.recipe import make_recipe
    from joao.reporting.embeddings import as_npz
    from joao.run import check_new_folder

    output = Output(quiet, as_json)
    folder = free_path(out)
    check_new_folder(folder)
    dataset = whole(open_data(str(BUNDLED / "MUTAG.zip"), None, output, {}))
    trained = train(partial(pretrain, device=device), make_recipe({"data": "MUTAG"}), dataset, folder, output)
    record = score(trained, dataset, folder / "evaluation.json", output, device=device, jobs=all_cores())
    write_file(folder / "embeddings.npz", as_npz(trained.embed(dataset).numpy(), dataset))
    output.say(f"Embeddings: {folder / 'embeddings.npz'}. Learned augmentations: {folder / 'policy.png'}")
    output.result({**summary(folder, trained), "evaluation": record})
    output.say("Next, with your own graphs: joao pretrain my_graphs.jsonl --out runs/mine")
