"""The study of fine-tuning with few labels. Oracle: separate fits that end at each epoch."""

from dataclasses import replace

import networkx
import torch

from joao.data import Features, read_whole
from joao.data.features import make_store
from joao.encoders import Gin
from joao.evaluation.targets import ClassTargets
from joao.training.finetune import Finetune, Finetuning
from repro.studies import few_labels


def make_finetuning(epochs):
    graphs = read_whole([networkx.gnp_random_graph(8, 0.2 + 0.4 * (number % 2), seed=number) for number in range(24)])
    store = make_store(graphs, Features.from_dataset(graphs, max_degree=8))
    targets = ClassTargets(torch.arange(24) % 2, 2)
    torch.manual_seed(0)
    return Finetuning(store, targets, Gin(9, width=8), Finetune(epochs=epochs, batch_size=4, learning_rate=0.05))


def test_last_and_averaged_weights_equal_those_of_separate_fits(monkeypatch):
    monkeypatch.setattr(few_labels, "EPOCHS", (4, 2, 6))
    monkeypatch.setattr(few_labels, "AVERAGED", 0.5)
    train, test, seed = torch.arange(16), torch.arange(16, 24), 3
    found = few_labels.fit_and_predict(make_finetuning(6), train, test, seed)
    finetuning, states = make_finetuning(6), {}
    for epochs in range(1, 7):
        finetuning.how = replace(finetuning.how, epochs=epochs)
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
    finetuning = make_finetuning(5)
    one, other = (few_labels.fit_and_predict(finetuning, train, test, seed) for seed in (0, 1))
    assert all((one[name] - other[name]).abs().max() > 1e-3 for name in one)
