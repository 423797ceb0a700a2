"""Operations of the padded path that torch has no single kernel for.

Each has a plain torch form, which defines it and runs anywhere, and a Triton form, which runs on NVIDIA GPUs.
"""
