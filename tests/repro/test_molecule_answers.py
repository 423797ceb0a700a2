"""The table of answers for molecules agrees with a direct computation from the records."""

import json
import re

import numpy as np
from scipy.stats import t

from repro.documents.study_blocks import molecule_answers
from repro.record_files import RECORDS
from repro.studies.molecule_rivals import bundled_encoder


def interval(differences):
    mean, half = np.mean(differences), t.ppf(0.975, len(differences) - 1) * np.std(differences, ddof=1)
    return mean, mean - half / len(differences) ** 0.5, mean + half / len(differences) ** 0.5


def test_ensemble_and_forest():
    shown = {tuple(line.split(" | ")[:2]): line for line in molecule_answers().splitlines()}
    cells = [json.loads(line) for line in (RECORDS / "molecule-tables.jsonl").read_text().splitlines()]
    for part, title, count, word in (("members", "development", 21, "better"), ("moleculenet", "MoleculeNet", 6, None)):
        errors = [
            each["errors"]
            for each in cells
            if each["cell"]["part"] == part and each["cell"].get("encoder") == bundled_encoder()
        ]
        assert len(errors) == count
        line = shown["| `finetune --ensemble`, minus forest on ECFP", f"{count} {title}"]
        numbers = list(map(float, re.findall(r"[+-]\d\.\d{3}", line)))
        expected = interval([each["ensemble_both_kernels"] - each["ecfp"] for each in errors])
        assert np.allclose(numbers, expected, atol=0.0006)
        assert line.endswith(f"| {word or 'inconclusive'} |")
        assert (word == "better") == (expected[2] < 0)
