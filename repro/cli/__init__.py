"""The commands of ``python -m repro``: protocols, figures, pages and benchmarks."""
