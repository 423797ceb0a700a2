"""Operations on padded batches that torch has no single kernel for.

Each operation has a plain torch form (``plain_...``), which defines it and runs on any device, and a Triton form in
``_triton`` for NVIDIA GPUs. The public function picks the form by the device of its input.
"""
