from repro.tables.pages import Times

CPU = {"processor": "P", "device": "cpu"}
GPU = {"processor": "P", "device": "cuda", "gpu": "H"}


def cell(method, **further):
    return {"dataset": "D", "method": method, **further}


def test_seconds_are_summed_by_machine():
    records = [
        {"cell": cell("joao", seed=0), "machine": CPU, "seconds": 1800.0, "seconds of pre-training": 900.0},
        {"cell": cell("joao", seed=1), "machine": CPU, "seconds": 1800.0, "seconds of pre-training": 900.0},
        {"cell": cell("joao", seed=2), "machine": GPU, "seconds": 7200.0},
    ]
    assert Times({"t": records}).cells() == [["t", "CPU", "2", "1.0"], ["t", "H", "1", "2.0"]]


def test_shared_pre_training_counts_once():
    tuned = {"machine": GPU, "seconds of pre-training": 3600.0, "seconds of fine-tuning": 1800.0}
    few_labels = [
        {"cell": cell("joao", seed=0, label_rate=1), **tuned},
        {"cell": cell("joao", seed=0, label_rate=10), **tuned},
        {"cell": cell("joao", seed=1, label_rate=10), **tuned},
    ]
    assert Times({"t": few_labels}).cells() == [["t", "H", "3", "3.5"]]
    large = {"machine": CPU, "pre-training": {"seconds": 7200.0}, "seconds of fine-tuning": 3600.0}
    of_rates = [{"cell": cell("joao", label_rate=rate), **large} for rate in (1, 10)]
    assert Times({"t": of_rates}).cells() == [["t", "CPU", "2", "4.0"]]


def test_pre_training_on_the_corpus_has_its_own_machine():
    corpus = {"machine": GPU, "weights": "w", "seconds": 3600.0}
    records = [{"cell": cell(name), "machine": CPU, "seconds": 3600.0, "corpus": corpus} for name in ("a", "b")]
    records.append({"cell": cell("none"), "machine": CPU, "seconds": 3600.0, "corpus": None})
    assert Times({"t": records}).cells() == [["t", "CPU", "3", "3.0"], ["t", "H", "0", "1.0"]]
