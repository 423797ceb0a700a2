from joao.policies import Uniform


def test_every_pair_has_the_same_probability():
    assert Uniform(["a", "b"]).probabilities.tolist() == [[0.25, 0.25], [0.25, 0.25]]
    assert Uniform(["a"]).probabilities.tolist() == [[1]]
