"""The budget of an input.

A few bytes of a file can claim any number of nodes, columns or weights, or expand to gigabytes. Whatever takes memory
that is not in proportion to the bytes of the input draws on a :class:`Budget` first. Its limits are in SECURITY.md.
"""

import os
import re
from dataclasses import dataclass

from joao.core.errors import UserError, short_repr

VARIABLE, DEFAULT = "JOAO_MEMORY", "1G"
# An input may take this many times its size, if that is more than the limit.
GROWTH = 64
# A compressed input may expand to so many times its size, or to so many bytes if that is more. Published data sets
# expand 2 to 50 times; a decompression bomb expands a thousand times or more.
MAX_EXPANSION, ALWAYS_ALLOWED_BYTES = 100, 1 << 26
_UNITS = {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass
class Budget:
    """Memory that an input of ``input_bytes`` may take, on disk or in memory; ``place`` is its name in messages.

    >>> Budget("graphs.jsonl", input_bytes=34).take(1 << 40, "1099511627776 features")
    Traceback (most recent call last):
        ...
    joao.core.errors.UserError: graphs.jsonl: 1099511627776 features would take 1048576 MB, the limit for this input \
is 1024 MB. Check them, or raise the limit: JOAO_MEMORY=1025G.
    """

    place: str
    input_bytes: int = 0
    taken: int = 0
    expanded: int = 0

    def take(self, num_bytes: int, what: str) -> None:
        """Draw ``num_bytes`` for ``what``, a plural; raises an error if the budget is exceeded."""
        self.taken += num_bytes
        limit = max(memory_limit(), GROWTH * self.input_bytes)
        if self.taken > limit:
            raise UserError(
                f"{self.place}: {what} would take {self.taken >> 20} MB, the limit for this input is {limit >> 20} MB. "
                f"Check them, or raise the limit: {VARIABLE}={(self.taken >> 30) + 1}G."
            )

    def expand(self, num_bytes: int) -> None:
        """Count bytes that were decompressed, of all files of the input and at all levels of compression."""
        self.expanded += num_bytes
        if self.expanded > max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * self.input_bytes):
            limit = f"{MAX_EXPANSION} times its size and {ALWAYS_ALLOWED_BYTES >> 20} MB"
            raise OSError(f"expands to more than {limit}. If you trust it, decompress it yourself")


def memory_limit() -> int:
    """Bytes that any input may take: the environment variable ``JOAO_MEMORY``, such as ``8G``; by default ``1G``."""
    text = os.environ.get(VARIABLE) or DEFAULT
    number = re.fullmatch(r"([0-9]{1,6})([MGT])", text.upper())
    if number is None:
        raise UserError(f"{VARIABLE}: expected a number with M, G or T, such as 8G, got {short_repr(text)}.")
    return int(number[1]) * _UNITS[number[2]]
