"""The candidates of :mod:`repro.studies.defaults`: one change at a time, then several together."""

from dataclasses import dataclass

from repro.studies.readouts import READOUTS

SEEDS = 3


@dataclass(frozen=True, order=True)
class Training:
    """Settings of a pre-training other than data, features and seed.

    Attributes:
        width: width of the encoder.
        log_degree: whether the logarithm of the degree is an additional feature.
        inside: readouts whose signed logarithm is the embedding of the encoder; empty for the usual sums.
    """

    width: int = 32
    log_degree: bool = False
    inside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A candidate for the defaults.

    Attributes:
        words: what differs from the default.
        epochs: number of epochs; 0 means no pre-training.
        readouts: concatenated readouts, see :func:`repro.studies.readouts.read_out`.
        log: whether to take the signed logarithm of the embedding.
        calibrated: whether batch normalisation uses statistics of all unchanged graphs instead of the last views.
        seeds: number of encoders whose embeddings are concatenated.
        later: offset of the seed of pre-training. The partition stays the same.
    """

    words: str
    training: Training = Training()
    epochs: int = 20
    readouts: tuple[str, ...] = ("sum",)
    log: bool = False
    calibrated: bool = False
    seeds: int = 1
    later: int = 0

    def training_seeds(self, seed: int) -> list[int]:
        """Return the seeds of the pre-trainings. Different seeds share none."""
        return [seed + self.later + SEEDS * number for number in range(self.seeds)]


WIDE = Training(width=128)
CANDIDATES = {
    "default": Candidate("the default of that time"),
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
