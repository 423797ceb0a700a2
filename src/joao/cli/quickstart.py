from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from joao.cli.inputs import AsJson, Device, Quiet, all_cores, open_data, whole
from joao.cli.output import Output, free_path


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
    from joao.cli.evaluate import score
    from joao.cli.training import summary, train
    from joao.config.recipe import make_recipe
    from joao.core.files import write_file
    from joao.data.names import BUNDLED
    from joao.runs.folder import check_new_folder
    from joao.runs.pretraining import pretrain
    from joao.runs.result_files import embeddings_npz as as_npz

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
