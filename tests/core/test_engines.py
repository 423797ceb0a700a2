"""Engines: an address at which no Ray cluster answers. `tests/runs/test_ray.py` embeds on Ray itself."""

import signal
import socket
from types import SimpleNamespace

import pytest

from joao.core.engines import ray_cluster
from tests.messages import refused


def test_a_ray_cluster_that_does_not_answer_is_named(monkeypatch):
    def init(**options):
        raise ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379")

    fake = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setattr("joao.core.engines._import_ray", lambda: fake)
    with refused("engine", "10.0.0.1:6379", "RAY_ADDRESS"), ray_cluster():
        pass


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_without_a_ray_cluster_is_refused_at_once(scheme, monkeypatch):
    fake = SimpleNamespace(is_initialized=lambda: False, init=lambda **options: pytest.fail("Ray"))
    monkeypatch.setattr("joao.core.engines._import_ray", lambda: fake)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # a port at which nothing listens
        address = f"{scheme}127.0.0.1:{free.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with refused("engine", address, "RAY_ADDRESS"), ray_cluster():
            pass


def test_ray_leaves_the_handler_of_sigterm(monkeypatch):
    """Its own, which it sets when it starts, ends the process by abort()."""

    def init(**options):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    fake = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: None)
    monkeypatch.setattr("joao.core.engines._import_ray", lambda: fake)
    before = signal.getsignal(signal.SIGTERM)
    with ray_cluster():
        assert signal.getsignal(signal.SIGTERM) is before
