"""Blocks about speed and about single studies."""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

import numpy as np

from joao.evaluation.tables import markdown, with_interval
from repro.benchmarks import rivals
from repro.documents.facts import (
    benchmark,
    count_word,
    listed,
    mean,
    paper_mean,
    require,
    unsupervised_rows,
    unsupervised_sets,
)
from repro.intervals import estimate_over_sets
from repro.protocols.semi_supervised import run as semi_supervised
from repro.protocols.transfer import run as transfer
from repro.protocols.unsupervised.run import Cell, record_file
from repro.protocols.unsupervised.table import gain_between
from repro.protocols.unsupervised.variants import strength_lines
from repro.record_files import RECORDS
from repro.studies import (
    benchmark_tables,
    defaults_page,
    molecule_cpu,
    molecule_pretraining,
    molecule_rivals,
    molecule_speed,
    processes,
    shards,
    strengths,
    sweep,
)
from repro.studies.benchmark_tables import workload
from repro.studies.common import read_record
from repro.studies.default_candidates import CANDIDATES
from repro.tables.benchmarks import figure
from repro.tables.rows import ScoredRow

CPU, CPU_CORE, GPU, GPU_TF32 = "cpu-1-thread", "cpu-compiled", "gpu-h200", "gpu-h200-tf32"
STEPS = ("GraphCL step", "GraphCL floor", "JOAO step", "JOAO floor")
FAST = ("GraphCL step, fast", "JOAO step, fast")


def tables_of(page: str) -> str:
    """The tables of a page, without its text."""
    return "\n".join(line for line in page.splitlines() if line.startswith("|"))


def speed() -> str:
    """Four lines for the README."""
    nci1 = workload(benchmark(GPU_TF32), "NCI1")["rows"]["JOAO step, fast"]["graphs per second"]
    molecules = next(
        row["graphs per second"][0]
        for row in read_record("gpu-kernels")["rows"]
        if row["workload"].startswith("molecules") and row["precision"] == "tf32"
    )
    core = benchmark(CPU_CORE)
    cpu = workload(core, "NCI1")["rows"]["JOAO step, fast"]["graphs per CPU second"]
    times = f"{benchmark_tables.over_rival(core)['NCI1']:.1f}"
    return f"""\
On one NVIDIA H200 with `--precision tf32`, JOAO pre-trains {round(molecules, -3):,.0f} ZINC-sized synthetic molecules/s (GIN 5x300, batch 256)
and, with the kernels of an earlier version, {round(nci1, -3):,.0f} graphs/s on NCI1 (GIN 3x32, batch 128). One thread of an {core["machine"]["processor"].removesuffix(" Processor").replace("(R)", "")}
with the compiled core pre-trains {round(cpu, -2):,.0f} graphs per CPU second on NCI1, {times} times as many as GraphCL with node dropping in
torch-geometric."""  # noqa: E501


def performance_targets() -> str:
    return benchmark_tables.targets_table(
        {name: {"settings": [benchmark(name)]} for name in (CPU, CPU_CORE, GPU, GPU_TF32)}
    )


def performance_cpu() -> str:
    rows = ("JOAO step, fast", "GraphCL step, fast", *STEPS, rivals.GEOMETRIC, rivals.UNCHANGED)
    return _graphs_per_second(CPU_CORE, {name: name for name in benchmark_tables.SETS}, rows, "graphs per CPU second")


def performance_rivals() -> str:
    found = workload(benchmark("cpu-rivals"), "NCI1")
    ours = {"JOAO step, fast": "JOAO, compiled core", "GraphCL step, fast": "GraphCL, compiled core"}
    ours |= {"JOAO step": "JOAO, plain path", "GraphCL step": "GraphCL, plain path"}
    lines = []
    for row in (*ours, rivals.GEOMETRIC, rivals.PYGCL, rivals.DIG):
        over = found["ratios of CPU time"].get(f"{row} / JOAO step, fast")
        shown = f"{over['median']:.2f} ({over['least']:.2f} to {over['most']:.2f})" if over else ""
        lines.append([ours.get(row, row), f"{found['rows'][row]['graphs per CPU second']:,.0f}", shown])
    return markdown(["NCI1", "graphs per CPU second", "CPU time over that of JOAO, compiled core"], lines)


def performance_molecules() -> str:
    record = read_record("molecule-cpu")
    zinc, chembl = (f"{np.median(row['rates'][molecule_cpu.EMBEDDING]):,.0f}" for row in record["rows"])
    times = [molecule_cpu.ratio(row["rates"], molecule_cpu.EMBEDDING, molecule_cpu.BEFORE) for row in record["rows"]]
    change = max(row["largest relative change"] for row in record["rows"])
    processor = record["machine"]["processor"]
    training = molecule_cpu.ratio(record["pre-training"]["rates"], *reversed(molecule_cpu.PRECISIONS))
    return f"""\
- The bundled encoder embeds {zinc} molecules of ZINC-250k and {chembl} of ChEMBL per CPU second, from SMILES ({processor}), {times[0]} and {times[1]} times as many as its forward pass. The largest relative change of an embedding is {change:.1e}.
- `joao pretrain --precision bf16-mixed` is {training} times as fast as `32-true` for molecules and the default encoder on a processor with bf16 instructions (the same); see the [study](results/molecule-cpu.md)."""  # noqa: E501


def performance_gpu() -> str:
    names = {"NCI1": "NCI1, GIN 3x32, batch 128", "molecules": "molecules, GIN 5x300, batch 256"}
    return _graphs_per_second(GPU_TF32, names, (*STEPS, *FAST, rivals.UNCHANGED))


def performance_gpu_kernels() -> str:
    record = read_record("gpu-kernels")
    lines = [
        [
            row["workload"],
            ", ".join([row["precision"], *filter(None, [row.get("note")])]),
            *("{:,} ({:,} to {:,})".format(*row[key]) if key in row else "" for key in ("graphs per second", "before")),
            f"{row['asked']:,}",
        ]
        for row in record["rows"]
    ]
    shards = record["shards over memory"]
    return (
        markdown(["JOAO", "precision", "graphs/s", "earlier kernels", "target"], lines)
        + "\n\nWith the earlier kernels and before reading became "
        "[faster](scaling.md#data-that-do-not-fit-into-memory), "
        f"graphs from shards reached {shards['median']:.2f} ({shards['least']:.2f} to "
        f"{shards['most']:.2f}) times the speed of graphs on the GPU, on {shards['graphs']:,} molecules, "
        f"{shards['encoder']}, {shards['precision']} (target: {shards['asked']})."
    )


def _graphs_per_second(
    record: str, workloads: dict[str, str], rows: tuple[str, ...], unit: str = "graphs per second"
) -> str:
    found = {name: workload(benchmark(record), name)["rows"] for name in workloads}
    lines = [
        [
            row.replace(", fast", ", compiled core" if record == CPU_CORE else ", fast path"),
            *(f"{found[name][row][unit]:,.0f}" for name in workloads),
        ]
        for row in rows
    ]
    return markdown(["", *(f"{title}, {unit.replace('per second', 'per s')}" for title in workloads.values())], lines)


def performance_roofline() -> str:
    setting = benchmark(GPU_TF32)
    found = workload(setting, "molecules")
    work, roof = found["work of a step"]["JOAO"], setting["roof"]
    multiply, copy = work["flop"] / roof["GFLOP/s"] / 1e6, work["bytes"] / roof["GB/s"] / 1e6
    step = found["rows"]["JOAO step, fast"]["ms per step"]["median"]
    return f"""\
- **Distance from the hardware limit.** The two views of a JOAO step on molecules need at least {work["flop"] / 1e9:.1f} GFLOP and {work["bytes"] / 1e9:.2f} GB. The same GPU multiplies matrices at {roof["GFLOP/s"] / 1000:.0f} TFLOP/s and copies at {roof["GB/s"] / 1000:.1f} TB/s, measured next to it. This gives {multiply:.2f} ms and {copy:.2f} ms, one after the other {multiply + copy:.2f} ms. The
  step took {step:.2f} ms in the first table above, including its share of the lower level. What takes the remaining time was not recorded."""  # noqa: E501


def performance_finetuning() -> str:
    records = semi_supervised.record_file(RECORDS)
    plain, augmented = (
        [records[f"NCI1/{method}-10-{seed}"] for seed in range(5)] for method in ("none", "augmentations")
    )
    took = [f"{record['seconds of fine-tuning']:.1f}" for record in plain]
    slow = [record["seconds of fine-tuning"] for record in augmented]
    torch = ".".join(plain[0]["versions"]["torch"].split(".")[:2])
    return f"""\
Ten folds of 100 epochs on NCI1 with 10 % of the labels took {listed(took)} s for five seeds in one process on one H200 (torch {torch}, {plain[0]["precision"]}), including the folds and testing. The first call compiles kernels, and the next ones meet new batch sizes. With
augmentations, whose views are drawn for each fold, they took {min(slow):.0f} to {max(slow):.0f} s (13 processes on the GPU)."""  # noqa: E501


def performance_growth() -> str:
    columns = {"GraphCL, an epoch": "GraphCL, one epoch", "JOAO, an epoch": "JOAO, one epoch", "peak memory": None}
    lines = []
    for name, axis in benchmark(CPU)["scaling"].items():
        fit = axis["fits"]["JOAO, an epoch"]
        unit = " nodes + edges" if axis["against"] == "nodes and edges" else ""
        sizes = f"{name} ({fit['smallest']:,.0f} to {fit['largest']:,.0f}{unit})"
        lines.append([sizes, *(f"{axis['fits'][column]['exponent']:.2f}" for column in columns)])
    return markdown(["exponent of", *(title or name for name, title in columns.items())], lines)


def performance_reading() -> str:
    svm = benchmark(CPU)["svm"]
    seconds = {name: figure(sum(turns)) for name, turns in svm["seconds of each turn"].items()}
    require(svm["identical"], "scores and selected parameters are identical")
    reading = benchmark("reading")["reading"]
    times = {
        name: [figure(reading[name][way]["seconds"]) for way in ("not kept", "first time", "second time")]
        for name in ("COLLAB", "REDDIT-MULTI-5K")
    }
    collab, multi = times.values()
    zinc, moses = read_record("molecule-speed")["rows"]
    rates = [f"{row['graphs, molecules per CPU second']:,.0f}" for row in (zinc, moses)]
    shares = [f"{100 * molecule_speed.rdkit_share(row):.0f} %" for row in (zinc, moses)]
    kinds = ("with SMILES", "graphs and labels alone")
    sizes = sorted(row[f"bytes per molecule, {kind}"] for row in (zinc, moses) for kind in kinds)
    loading = sorted(moses[f"seconds to load, {kind}"] for kind in kinds)
    joao = transfer.record_file(RECORDS)["bbbp/joao"]
    corpus, epochs = joao["corpus"], joao["recipe"]["training"]["epochs"]
    rate = workload(benchmark(GPU_TF32), "molecules")["rows"]["JOAO step, fast"]["graphs per second"]
    return f"""\
- SVM protocol, {svm["folds"]} outer folds of the embeddings of {svm["data"]} ({svm["graphs"]:,} x {svm["dimensions"]}): plain search {seconds["plain, 1 job"]} s with one job and {seconds["plain, 2 jobs"]} s with two; ours {seconds["ours, 1 job"]} s with one job and {seconds["ours, 2 jobs"]} s with two. Scores and selected parameters are identical. The rest of the time is spent in libsvm.
- joao keeps a packed copy of data sets of 1 MiB or more ([cache](data-formats.md#cache)). A process that starts, reads and ends takes for COLLAB {collab[0]} s without copy, {collab[1]} s the first time and {collab[2]} s the second time; for REDDIT-MULTI-5K {multi[0]} s, {multi[1]} s and {multi[2]} s.
- RDKit takes {shares[0]} (ZINC-250k) and {shares[1]} (MOSES) of the CPU time of reading molecules: {rates[0]} and {rates[1]} molecules per CPU second. A packed molecule takes {sizes[0]:.0f} to {sizes[-1]:.0f} bytes, and {moses["molecules"] / 1e6:.2f} million load in {loading[0]:.1f} to {loading[1]:.1f} s ([study](results/molecule-speed.md)).
- Pre-training JOAO for the transfer table ({count_word(epochs)} epochs of {corpus["molecules"]:,} molecules) took {corpus["seconds"]:.1f} s on a shared GPU, including compilation. At this rate 100 epochs would take {corpus["seconds"] / epochs * 100 / 60:.0f} minutes, and {corpus["molecules"] * 100 / rate / 60:.0f} minutes at the rate of the benchmark."""  # noqa: E501


def strengths_findings() -> str:
    record = read_record("strengths")
    chosen = strengths.chosen(record)
    require(chosen == "Kullback-Leibler, gamma 1, equal prior", "equal prior and gamma 1 were chosen")
    scores = {line[0].strip("*"): line for line in strengths.score_lines(record)}
    *_, average, gain, cost = scores[chosen]
    means = {way: line[-3] for way, line in scores.items()}
    *lines, overall = strength_lines([each for each in record_file(RECORDS).read() if not Cell(**each["cell"]).variant])
    bounds = [re.search(r"\((\S+) to (\S+)\)", line[3]) for line in lines]
    contain = all(found is not None and float(found[1]) < 0 < float(found[2]) for found in bounds)
    require(len(lines) == 8 and contain, "the interval contains 0 on every data set")
    difference, spread = gain.split(" ", 1)
    return f"""\
- {count_word(len(strengths.DATASETS)).capitalize()} data sets, {count_word(len(strengths.SEEDS))} seeds, mean accuracy: {means[strengths.FIXED]} for JOAO at 0.2, and {average} for learned strengths (equal prior, `gamma` 1). The difference is {difference} points {spread.removesuffix(")")} over seeds). JOAO's maximiser over strengths has {means["JOAO's own maximiser over strengths"]}. Uniform pairs
  at 0.2, which learn nothing, have {means["uniform, fixed 0.2"]}.
- On these data sets the difference from JOAO is inconclusive. Learned strengths save one setting. They take {cost} times the CPU time of JOAO, because the lower level encodes 25 draws instead of 9.
- On COX2 and DHFR the policy learned to prefer `attribute_mask`, half of it at strength 0.3. On MSRC_9 and MSRC_21 it stayed close to the prior.
- On the eight data sets of the paper's table, with these settings, learned strengths have a mean accuracy of {overall[2]} and JOAO at 0.2 has {overall[1]}. The interval of the difference contains 0 on every data set
  ([scores](../results/unsupervised/strengths.md), [learned tables](../results/unsupervised/learned.md))."""  # noqa: E501


def bundled_models() -> str:
    folder = files("joao") / "pretrained"
    card = (folder / "molecules.md").read_text(encoding="utf-8")
    change = re.search(r"changes embeddings by (up to \S+ of their length)", card)
    molecules = re.search(r"on ([\d,]+) molecules", card)
    assert change is not None
    assert molecules is not None
    size = len((folder / "molecules.safetensors").read_bytes()) / 1e6
    return markdown(
        ["name", "description"],
        [
            [
                "`molecules`",
                f"`molecule_gine`, five layers, width 256, pre-trained for 20 epochs on {molecules[1]} molecules "
                "of ChEMBL, ZINC-250k and MOSES with JOAO's contrastive loss, descriptors and ECFP counts as targets, "
                "half precision, "
                f"{size:.1f} MB ([comparison](results/molecule-pretraining.md)). Half precision changes embeddings "
                f"by {change[1]}. Model card: `src/joao/pretrained/molecules.md`",
            ]
        ],
    )


SHOWN_CANDIDATES = ("width_128", "epochs_100", "log_readouts", "wide_log_readouts", "wide_log_degree", "everything")


def default_candidates() -> str:
    gains, gpu, cpu = _gains_of_candidates(), _relative_times("defaults"), _relative_times("defaults-cpu")
    lines = [[CANDIDATES[name].words, gains[name], gpu[name], cpu.get(name, "")] for name in SHOWN_CANDIDATES]
    satisfied = [name for name, gain in gains.items() if _satisfies(gain, float(gpu[name]))]
    require(
        len(satisfied) == 3 and all("width 128" in CANDIDATES[name].words for name in satisfied), "three candidates"
    )
    header = ["candidate", "gain over the default (95 % CI over data sets)"]
    header += ["relative time, GPU", "relative time, one CPU thread"]
    return markdown(header, lines).replace("|  ", "| ")


def _gains_of_candidates() -> dict[str, str]:
    records = record_file(RECORDS, "defaults").read()
    places = sorted({record["cell"]["dataset"] for record in records})
    gains = defaults_page.gains_over_default(records, places, CANDIDATES)
    return {name: defaults_page.over_sets(gains, name, places) for name in CANDIDATES if name != "default"}


def _relative_times(table: str) -> dict[str, str]:
    records = record_file(RECORDS, table).read()
    return {name: f"{value:.1f}" for name, value in defaults_page.relative_times(records, CANDIDATES).items()}


def _satisfies(gain: str, time: float) -> bool:
    found = re.match(r"(\S+) \((\S+) to", gain)
    return found is not None and float(found[1]) >= 1 and float(found[2]) > 0 and time <= 2


def default_criteria() -> str:
    ranks = defaults_page.rank_correlations(record_file(RECORDS, "defaults").read())
    loss, alignment, uniformity, rank = (f"{ranks[name]:+.2f}" for name in defaults_page.CRITERIA)
    calibrated = _gains_of_candidates()["calibrated"]
    return f"""\
No criterion without labels would have found the candidates with the largest gains. The rank correlation with accuracy over the candidates is {loss} for the loss on held-out graphs, {alignment} for
alignment, {uniformity} for uniformity and {rank} for the effective rank of the embeddings. Calibrating the trained encoder gains {calibrated}. Four candidates (log inside,
width 128 with log inside, log of all readouts inside, log-degree) finished later than the others, and none of them satisfies the rule."""  # noqa: E501


def default_averages() -> str:
    table, sets = unsupervised_rows(), unsupervised_sets()
    rows = {
        method: [table[method, name] for name in sets] for method in ("joao_sum_readout", "joao", "joaov2", "graphcl")
    }
    papers = {method: paper_mean(rows[method]) for method in ("joao", "joaov2", "graphcl")}
    below = {
        name: table["joaov2", name].paper.mean - table["joao_sum_readout", name].mean  # type: ignore[union-attr]
        for name in sets
    }
    (worst, miss), *others = [(name, by) for name, by in below.items() if by > 0]
    require(not others, "JOAO() is below the paper's JOAOv2 on one data set")
    change = {name: table["joao_sum_readout", name].mean - table["joao", name].mean for name in sets}
    require(max(change["REDDIT-MULTI-5K"], change["REDDIT-BINARY"]) < 0, "a constant works better on REDDIT")
    return f"""\
The eight data sets of the paper's table played no part in these choices. On them `JOAO()` with the older default settings reaches an average of {mean(rows["joao_sum_readout"]):.1f}, and JOAO with the paper's features
(node labels or a constant) reaches {mean(rows["joao"]):.1f} ([overview](../results/unsupervised/overview.md)). The paper reports {papers["joao"]:.1f} (JOAO), {papers["joaov2"]:.1f} (JOAOv2) and {papers["graphcl"]:.1f} (GraphCL).

It is above the paper's JOAOv2 on {count_word(len(sets) - 1)} data sets and {miss:.1f} points below it on {worst}. On REDDIT-MULTI-5K and REDDIT-BINARY a constant feature has a higher mean than degrees, on
COLLAB and IMDB-BINARY a lower one, by {change["COLLAB"]:.1f} and {change["IMDB-BINARY"]:.1f} points. The choice of features moves these averages more than any part of JOAO ([factors](../results/factors.md))."""  # noqa: E501


NEW_DEFAULT = ("joao_default", "joao_default+wl", "joao_default+wl+ldp")


def new_default() -> str:
    """The present default on the eight sets, alone and with kernels, beside the older one."""
    records, table, sets = record_file(RECORDS).read(), unsupervised_rows(), unsupervised_sets()
    is_done = {name: all(len(_scores(table, method, name)) == 5 for method in NEW_DEFAULT) for name in sets}
    done = [name for name in sets if is_done[name]]
    pairs = [
        *((method, "joao_sum_readout") for method in NEW_DEFAULT),
        *((each, "joao_default") for each in NEW_DEFAULT[1:]),
    ]
    lines = []
    for name in done:
        gains = (gain_between(records, name, *pair) for pair in pairs)
        scores = [table[method, name].score for method in ("joao_sum_readout", *NEW_DEFAULT)]
        lines.append([name, *scores, *map(with_interval, gains)])
    header = ["data", "older default", "default", "with WL", "with WL and degree profile"]
    header += ["default - older", "with WL - older", "with both - older", "with WL - default", "with both - default"]
    explained = "Accuracy in percent, five seeds; gains in points with 95 % intervals"
    if missing := [name for name in sets if not is_done[name]]:
        verb = "is" if len(missing) == 1 else "are"
        text = f"{explained}. {listed(missing)} {verb} not finished, so no average is stated."
        return f"{markdown(header, lines)}\n\n{text}"
    averages = {method: mean([table[method, name] for name in sets]) for method in ("joao_sum_readout", *NEW_DEFAULT)}
    over_sets = [
        estimate_over_sets([table[one, name].mean - table[other, name].mean for name in sets]).interval()
        for one, other in pairs
    ]
    lines.append(["average", *(f"{each:.2f}" for each in averages.values()), *map(with_interval, over_sets)])
    compared = []
    for method, name, asked in zip(NEW_DEFAULT, header[2:5], (78.2, 79.0, 79.0), strict=True):
        miss = asked - averages[method]
        compared.append(
            f"{averages[method]:.2f} ({name}, {f'{miss:.2f} below' if miss > 0 else 'above'} the {asked} asked for)"
        )
    text = f"{explained}, in the last line over sets. Averages: {listed(compared)}."
    return f"{markdown(header, lines)}\n\n{text}"


def _scores(table: Mapping[tuple[str, str], ScoredRow], method: str, name: str) -> Sequence[float]:
    return table[method, name].scores if (method, name) in table else ()


def shards_memory() -> str:
    record = read_record("shards")
    header, lines = shards.memory_table(record)
    shown = ["graphs", "store, MB", "packing: anonymous, MB", "training from shards: anonymous, MB"]
    shown += ["mapped files, MB", "training in memory: anonymous, MB"]
    cells = [[line[header.index(name)] for name in shown] for line in lines]
    whole, ratio, rows = record["pass"], record["speed"]["ratio"], record["sizes"]
    before = {round(row["shards"]["anonymous before"] / 1e6) for row in rows}
    least, most = min(before), max(before)
    return f"""\
{markdown(shown, cells)}

- Before training, the process uses {least if least == most else f"{least} to {most}"} MB of anonymous memory.
- One pass over {whole["graphs"]:,} graphs in batches of {record["batch"]} took {whole["seconds"]:.0f} s ({whole["CPU seconds"]:.0f} CPU s), with at most {whole["anonymous at most"] / 1e6:,.0f} MB of anonymous memory and {whole["file at most"] / 1e6:,.0f} MB of mapped files.
- Batches from shards take {ratio["batches"][0]:.2f} times the CPU time of batches from memory, because features are computed and edges are checked again each time. For a whole training step the ratio is {ratio["steps"][0]:.2f} ({ratio["steps"][1]:.2f} to {ratio["steps"][2]:.2f})."""  # noqa: E501


def processes_speed() -> str:
    lines = []
    for row in read_record("processes")["speed"]:
        one, two, ratios = processes.speeds(row)
        cells = [f"{np.median(one):,.0f}", f"{np.median(two):,.0f}", f"{np.median(ratios):.2f}"]
        lines.append([f"{row['data']}, {row['encoder']}, {row['batch size']}", *cells])
    header = ["data, encoder, batch", "one process, graphs/s", "two processes, graphs/s", "two / one"]
    return markdown(header, lines)


# Assumed, not measured, of the links inside a machine of 8 GPUs and between machines: GB/s per GPU, and microseconds
# per message.
LINKS = {8: (50, 5), 64: (12.5, 10)}


def several_gpus() -> str:
    """A model of the speed on several GPUs with local negatives."""
    networks = read_record("shards")["networks"]
    cases = {"NCI1": ("NCI1, GIN 3x32", "graphs"), "molecules": ("molecules, GIN 5x300", "molecules")}
    lines, messages = [], []
    for name, (title, kind) in cases.items():
        row = workload(benchmark(GPU_TF32), name)["rows"]["JOAO step, fast"]
        step, rate = row["ms per step"]["median"], row["graphs per second"]
        size = 4 * networks[kind]["parameters"]
        messages.append(f"{size / 1e6:.2f} MB ({title})")
        for gpus in (1, 2, 4, 8, 16, 32, 64):
            bandwidth, latency = LINKS[8 if gpus <= 8 else 64]
            exchange = 2 * (gpus - 1) / gpus * size / bandwidth / 1e6 + 2 * np.log2(gpus) * latency / 1e3
            share = step / (step + exchange)
            cells = [f"{exchange:.2f}", f"{share:.2f}", f"{gpus * share:.1f}", f"{gpus * share * rate:,.0f}"]
            lines.append([title, str(gpus), f"{step:.2f}", *cells, f"{1e9 / (gpus * share * rate) / 3600:.2f}"])
    header = ["data, encoder", "GPUs", "step, ms", "exchange, ms", "efficiency", "speed-up", "graphs/s"]
    assumed = "; ".join(
        f"{'up to 8 GPUs, one machine' if gpus == 8 else 'more'}: W = {bandwidth:g} GB/s, L = {latency} µs"
        for gpus, (bandwidth, latency) in LINKS.items()
    )
    return f"""\
Messages: {listed(messages)}, 4 bytes per parameter. Assumed links: {assumed}.

{markdown([*header, "a pass over a billion graphs, hours"], lines)}"""


def molecule_answers() -> str:
    """What was compared on tables of molecules: the first method minus the second, over the sets that have records."""
    errors: dict[tuple[str, str], dict[str, dict[str, float]]] = {}  # source and group -> set -> method
    for each in sweep.record_file(RECORDS / "molecule-tables.jsonl").read():
        if each["cell"].get("encoder") == molecule_rivals.bundled_encoder():
            errors.setdefault(("tables", each["cell"]["part"]), {})[each["cell"]["dataset"]] = each["errors"]
    for each in sweep.record_file(molecule_rivals.FILE).read():
        if each["cell"]["part"] == "errors":
            group = "members" if each["cell"]["name"] in molecule_rivals.GROUPS["development"] else "moleculenet"
            errors.setdefault(("rivals", group), {})[each["cell"]["name"]] = each["errors"]
    for each in sweep.record_file(molecule_pretraining.RECORD).read():
        if name := each["cell"]["dataset"]:
            arms = errors.setdefault(("pre-training", "members"), {}).setdefault(name, {})
            arms[each["cell"]["arm"]] = each["error"]
    lines = []
    for words, source, one, other in MOLECULE_QUESTIONS:
        for group, title in (("members", "development"), ("moleculenet", "MoleculeNet")):
            if found := errors.get((source, group)):
                differences = [each[one] - each[other] for each in found.values()]
                lines.append([words, f"{len(found)} {title}", *molecule_rivals.verdict(differences)])
    return markdown(["first minus second", "sets", "difference of errors (95 % CI)", "the first is"], lines)


_ENSEMBLE, _FOREST, _BOTH = "`finetune --ensemble`", "forest on ECFP", "kernel on embeddings and ECFP"
MOLECULE_QUESTIONS = (
    (f"{_ENSEMBLE}, minus {_FOREST}", "tables", "ensemble_both_kernels", "ecfp"),
    (f"{_ENSEMBLE}, minus the same without the encoder", "tables", "ensemble_both_kernels", "ensemble_tanimoto"),
    (f"{_BOTH}, minus kernel on ECFP", "tables", "both_kernels", "tanimoto"),
    (f"{_BOTH}, minus {_ENSEMBLE}", "tables", "both_kernels", "ensemble_both_kernels"),
    (f"chemprop with its defaults, minus {_FOREST}", "rivals", "chemprop", "ecfp"),
    (f"chemprop with its defaults, minus {_ENSEMBLE}", "rivals", "chemprop", "ensemble"),
    (f"forest on embeddings, minus {_FOREST}", "pre-training", "both", "ecfp"),
    ("pre-training with contrastive loss and targets, minus targets alone", "pre-training", "both", "targets"),
    ("the same, minus contrastive loss alone", "pre-training", "both", "contrastive"),
)
