"""The study of fine-tuning with few labels. Oracle: separate fits that end at each epoch."""

from dataclasses import replace

import networkx
import torch

from joao.data import Features, read_whole
from joao.data.features import make_store
from joao.encoders import Gin, ResGcn
from joao.evaluation.targets import ClassTargets
from joao.training.finetune import Finetune, Finetuning
from repro.protocols.stacked_fits import Part
from repro.studies import few_labels


def make_finetuning(epochs, encoder=Gin, fast=False, learning_rate=0.05):
    graphs = read_whole([networkx.gnp_random_graph(8, 0.2 + 0.4 * (number % 2), seed=number) for number in range(24)])
    store = make_store(graphs, Features.from_dataset(graphs, max_degree=8))
    targets = ClassTargets(torch.arange(24) % 2, 2)
    torch.manual_seed(0)
    how = Finetune(epochs=epochs, batch_size=4, learning_rate=learning_rate)
    return Finetuning(store, targets, encoder(9, width=8), how, fast=fast)


def predict(finetuning, train, test, seeds):
    parts = [Part(train, train[:1], seed, finetuning.initial_weights(seed)) for seed in seeds]
    return list(few_labels.predictions(finetuning, parts, [test] * len(parts)))


def test_last_and_averaged_weights_equal_those_of_separate_fits(monkeypatch):
    monkeypatch.setattr(few_labels, "EPOCHS", (4, 2, 6))
    monkeypatch.setattr(few_labels, "AVERAGED", 0.5)
    train, test, seed = torch.arange(16), torch.arange(16, 24), 3
    (found,) = predict(make_finetuning(6), train, test, [seed])
    finetuning, states = make_finetuning(6), {}
    for epochs in range(1, 7):
        finetuning.settings = replace(finetuning.settings, epochs=epochs)
        finetuning.fit(train, train[:0], seed, start=finetuning.initial_weights(seed))
        states[epochs] = finetuning.state()
        if epochs in (2, 4, 6):
            torch.testing.assert_close(found[f"last of {epochs}"], finetuning.logits(test).softmax(1))
    for last, window in {4: (3, 4), 2: (2,), 6: (4, 5, 6)}.items():
        each = zip(*(states[epoch] for epoch in window), strict=True)
        finetuning.set_state([torch.stack([value.double() for value in values]).mean(0) for values in each])
        expected = finetuning.logits(test).softmax(1)
        torch.testing.assert_close(found[f"average of {last}"], expected, rtol=1e-4, atol=1e-5)
    assert (found["average of 6"] - found["last of 6"]).abs().max() > 1e-3


def test_heads_differ_in_their_start(monkeypatch):
    monkeypatch.setattr(few_labels, "EPOCHS", (5,))
    train, test = torch.arange(16), torch.arange(16, 24)
    one, other = predict(make_finetuning(5), train, test, (0, 1))
    assert all((one[name] - other[name]).abs().max() > 1e-3 for name in one)


def test_stacked_fits_predict_as_single_ones(monkeypatch):
    monkeypatch.setattr(few_labels, "EPOCHS", (4, 6))
    monkeypatch.setattr(few_labels, "AVERAGED", 0.5)
    train, test = torch.arange(16), torch.arange(16, 24)
    together = make_finetuning(6, ResGcn, fast=True, learning_rate=1e-3)
    monkeypatch.setattr(together, "fit", None)  # nobody may fall back to it
    alone = predict(make_finetuning(6, ResGcn, learning_rate=1e-3), train, test, (0, 1, 2))
    for one, other in zip(predict(together, train, test, (0, 1, 2)), alone, strict=True):
        assert one.keys() == other.keys() == {"last of 4", "last of 6", "average of 4", "average of 6"}
        for name in one:
            torch.testing.assert_close(one[name], other[name], rtol=1e-3, atol=1e-3)
