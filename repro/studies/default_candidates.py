"""The candidates of studies/defaults.py: one change at a time, then several together."""

from __future__ import annotations

from dataclasses import dataclass

from repro.studies.readouts import READOUTS

SEEDS = 3


@dataclass(frozen=True, order=True)
class Training:
    """What decides a pre-training beside data, features and seed.

    Attributes:
        width: of the encoder.
        log_degree: whether the log of the degree is one more feature.
        inside: readouts whose signed log is the encoder's own embedding; none of them is its sums as they are.
    """

    width: int = 32
    log_degree: bool = False
    inside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A way to embeddings.

    Attributes:
        words: what differs from the default.
        epochs: of pre-training; 0 is none.
        readouts: what is made of the nodes, side by side, see :func:`readouts.read_out`.
        log: whether the signed log of it is taken.
        calibrated: whether normalisation has its statistics from all graphs as they are, not from the last views.
        seeds: encoders whose embeddings are side by side.
        later: added to the seed of the pre-training, not to the number of the partition.
    """

    words: str
    training: Training = Training()
    epochs: int = 20
    readouts: tuple[str, ...] = ("sum",)
    log: bool = False
    calibrated: bool = False
    seeds: int = 1
    later: int = 0

    def trained(self, seed: int) -> list[int]:
        """The seeds of the pre-trainings; those of different seeds have none in common."""
        return [seed + self.later + SEEDS * number for number in range(self.seeds)]


WIDE = Training(width=128)
CANDIDATES = {
    "default": Candidate("the present default"),
    "another_seed": Candidate("nothing but the seed of the pre-training", later=SEEDS),
    "untrained": Candidate("no pre-training", epochs=0, calibrated=True),
    "width_128": Candidate("width 128", WIDE),
    "log": Candidate("log", log=True),
    "log_inside": Candidate("log inside", Training(inside=("sum",))),
    "log_degree": Candidate("log-degree", Training(log_degree=True)),
    "epochs_40": Candidate("40 epochs", epochs=40),
    "epochs_100": Candidate("100 epochs", epochs=100),
    "input": Candidate("input's sums", readouts=("sum", "input")),
    "mean": Candidate("means", readouts=("sum", "mean")),
    "max": Candidate("maxima", readouts=("sum", "max")),
    "calibrated": Candidate("calibrated", calibrated=True),
    "two_seeds": Candidate("2 seeds", seeds=2),
    "three_seeds": Candidate("3 seeds", seeds=3),
    "untrained_wide_log": Candidate("no pre-training, width 128, log", WIDE, epochs=0, calibrated=True, log=True),
    "wide_log": Candidate("width 128, log", WIDE, log=True),
    "wide_log_inside": Candidate("width 128, log inside", Training(128, inside=("sum",))),
    "wide_log_100": Candidate("width 128, log, 100 epochs", WIDE, epochs=100, log=True),
    "log_max": Candidate("log, maxima", readouts=("sum", "max"), log=True),
    "untrained_log_readouts": Candidate(
        "no pre-training, log, all readouts", epochs=0, calibrated=True, readouts=READOUTS, log=True
    ),
    "calibrated_log_readouts": Candidate("calibrated, log, all readouts", calibrated=True, readouts=READOUTS, log=True),
    "readouts_inside": Candidate("log of all readouts inside", Training(inside=READOUTS)),
    "log_readouts": Candidate("log, all readouts", readouts=READOUTS, log=True),
    "wide_log_readouts": Candidate("width 128, log, all readouts", WIDE, readouts=READOUTS, log=True),
    "wide_log_degree": Candidate("width 128, log, log-degree", Training(128, True), log=True),
    "everything": Candidate(
        "width 128, log, log-degree, all readouts, 40 epochs",
        Training(128, True),
        epochs=40,
        readouts=READOUTS,
        log=True,
    ),
}
