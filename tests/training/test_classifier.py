import pytest
import torch

from joao.encoders import Gin
from joao.training.finetune import Classifier


@pytest.fixture
def classifier(store):
    return Classifier(Gin(store.num_features, width=4, layers=2), num_outputs=3).eval()


def test_logits_are_a_linear_map_of_the_embeddings_as_they_are(classifier, store):
    s = store.batch(torch.arange(6))
    embeddings, linear = classifier.encoder(s), classifier.linear
    expected = torch.stack([linear.weight @ row + linear.bias for row in embeddings])
    torch.testing.assert_close(classifier(*s.fields), expected)


def test_embeddings_are_shifted_and_then_scaled(classifier):
    classifier.shift += torch.arange(8.0)
    classifier.scale *= 4
    embeddings = torch.arange(8.0) + 4 * torch.eye(8)  # rows of the unit matrix, once standardised
    expected = classifier.linear.weight.T + classifier.linear.bias
    torch.testing.assert_close(classifier.classify(embeddings), expected)


def test_the_linear_layer_starts_xavier_uniform_with_zero_bias():
    linear = Classifier(Gin(3, width=300, layers=1), num_outputs=200).linear
    bound = (6 / 500) ** 0.5
    assert not linear.bias.any()
    assert 0.99 * bound < linear.weight.abs().max() <= bound


def test_standardisation_is_saved_and_not_trained(classifier):
    state = classifier.state_dict()
    assert {"shift", "scale", "linear.weight", "linear.bias"} < set(state)
    assert not {"shift", "scale"} & {name for name, _ in classifier.named_parameters()}
