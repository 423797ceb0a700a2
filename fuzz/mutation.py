"""Mutations that know the structure of a file: parts, JSON, tables, archives and compression.

A mutated file should still be a file of its kind, so that it gets past the parser and reaches the checks behind it.
What is replaced is a value of JSON, a cell or a row of a table, or a member of an archive. The
other mutations are those of the fuzzer, which changes bytes.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import lzma
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

Basic = Callable[[bytes], bytes]
CUT = b"=== "
# Tokens of JSON, cells and words that a reader may not expect.
NUMBERS = (
    "0", "-1", "1", "2", "255", "65536", "2147483647", "2147483648", "-9223372036854775808", "9223372036854775807",
    "4611686018427387904", "18446744073709551616", "1e400", "-1e400", "1e38", "1e-300", "NaN", "-Infinity", "1.5",
    "0.5", "999999999999999999999999", "9" * 400, "-0", "16777216", "100000000",
)  # fmt: skip
TOKENS = (
    *NUMBERS, "null", "true", "false", "[]", "{}", "[[]]", "[null]", '""', '"a"', '"1"', '"\\ud800"', '"\\u0000"',
    '"1_0"', '"\u0661"', '"a|b](c) <d> `e`"', '"../../a"', '"' + "a" * 300 + '"', "[" * 40 + "]" * 40, '{"a": {}}',
)  # fmt: skip
CELLS = (
    *NUMBERS, "", " ", "1_0", "+1", "010", "\u0661\u0660", "a", '"', "'", "a b", "\x00", "\ufeff", "[#119]", "[Na+]",
    "c1ccccc1", "C" * 300, "c1ccc", "\ud7ff", "=1+1", "<!ENTITY a 'b'>", "&#x1F600;", "nan", "inf", "0x10", "1e5",
)  # fmt: skip


class Pairs(list[tuple[str, Any]]):
    """An object of JSON, whose keys may be repeated."""


class Raw(str):
    """A token that is written as it is."""


def mutate(data: bytes, random: Random, basic: Basic, most: int = 1 << 14) -> bytes:
    """Change ``data`` in one to three places."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        changed = _change(data, random, basic)
        if len(changed) <= most:
            data = changed
    return data


def _change(data: bytes, random: Random, basic: Basic) -> bytes:
    if random.random() < 0.3 or not data:
        return basic(data)
    if data.startswith(CUT):
        return _change_part(data, random, basic)
    if data[:4] == b"PK\x03\x04":
        return _change_archive(data, random, basic)
    if data[1:3] == b"\x1f\x8b" or data[1:7] == b"\xfd7zXZ\x00":  # after the byte that chooses the name of the file
        return data[:1] + _change_compressed(data[1:], random, basic)
    if data[:2] == b"\x1f\x8b" or data[:6] == b"\xfd7zXZ\x00":
        return _change_compressed(data, random, basic)
    if data.lstrip()[:1] in (b"{", b"["):
        return _change_json(data, random) or basic(data)
    if b"\n" in data and data.isascii() and b"<" not in data[:5]:
        return _change_table(data, random)
    return _change_word(data, random) or basic(data)


def _change_part(data: bytes, random: Random, basic: Basic) -> bytes:
    """Change one of several files; sometimes leave it out, or give it the name or content of another."""
    pieces = [piece.partition(b"\n")[::2] for piece in (b"\n" + data).split(b"\n" + CUT)[1:]]
    chosen = random.randrange(len(pieces))
    name, content = pieces[chosen]
    kind = random.random()
    if kind < 0.03:
        del pieces[chosen]
    elif kind < 0.06:
        pieces[chosen] = name, random.choice(pieces)[1]
    elif kind < 0.08:
        pieces.append((random.choice(pieces)[0], content))
    else:
        pieces[chosen] = name, _change(content, random, basic)
    return b"\n".join(CUT + name + b"\n" + content for name, content in pieces)


def _change_archive(data: bytes, random: Random, basic: Basic) -> bytes:
    """Change a member of a zip archive: its content, its name, or its folder."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info), info.compress_type) for info in archive.infolist()]
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        OSError,
        EOFError,
        ValueError,
        zlib.error,
        lzma.LZMAError,
        RuntimeError,
    ):
        return basic(data)
    if not members or random.random() < 0.2:
        return basic(data)
    chosen = random.randrange(len(members))
    name, content, method = members[chosen]
    kind = random.random()
    if kind < 0.1:
        members.append((name, content, method))
    elif kind < 0.2:
        folder, _, last = name.rpartition("/")
        members.append((random.choice((f"b/{last}", f"{folder}/../{last}", name.upper(), f"{name}/")), content, method))
    elif kind < 0.25:
        del members[chosen]
    else:
        members[chosen] = name, _change(content, random, basic), method
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as archive:
        warnings.simplefilter("ignore")  # about repeated names
        for name, content, method in members:
            archive.writestr(name, content, method)
    return stream.getvalue()


def _change_compressed(data: bytes, random: Random, basic: Basic) -> bytes:
    """Change what is compressed, in one or several streams."""
    unpack, pack = (gzip.decompress, gzip.compress) if data[:2] == b"\x1f\x8b" else (lzma.decompress, lzma.compress)
    try:
        content = _change(unpack(data), random, basic)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
        return basic(data)
    if random.random() < 0.1:
        half = len(content) // 2
        return pack(content[:half]) + pack(content[half:])
    return pack(content)


def _change_json(data: bytes, random: Random) -> bytes | None:
    """Change one value of JSON, of one line if there are several documents; None if it is not JSON."""
    lines = data.split(b"\n") if b"\n{" in data else [data]
    chosen = random.randrange(len(lines))
    try:
        value = json.loads(lines[chosen] or lines[0], object_pairs_hook=Pairs, parse_int=Raw, parse_float=Raw)
    except (ValueError, RecursionError):
        return None
    if len(lines) > 1 and random.random() < 0.1:
        lines.insert(chosen, random.choice(lines))
        return b"\n".join(lines)
    places = list(_places(value))
    if places:
        _change_inside(*random.choice(places), places, random)
    else:
        value = Raw(random.choice(TOKENS))
    lines[chosen] = _dump(value).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _change_inside(holder: Any, key: int, places: list[tuple[Any, int]], random: Random) -> None:
    name, old = holder[key] if isinstance(holder, Pairs) else (None, holder[key])
    kind = random.random()
    if kind < 0.08:
        del holder[key]
        return
    if kind < 0.16:
        holder.insert(random.randrange(len(holder) + 1), holder[key])  # of an object, a repeated key
        return
    if kind < 0.28:
        other, position = random.choice(places)
        new = copy.deepcopy(other[position][1] if isinstance(other, Pairs) else other[position])  # may contain holder
    elif kind < 0.36 and isinstance(old, Raw) and re.fullmatch(r"-?[0-9]{1,18}", old):
        new = Raw(str(int(old) + random.choice((-1, 1, 2, 256))))
    elif kind < 0.4 and isinstance(old, list):
        new = type(old)(old * random.choice((2, 3, 50)))
    elif kind < 0.44 and name is not None:
        name, new = name + random.choice(("", "x", " ", "\x00")), old
    else:
        new = Raw(random.choice(TOKENS))
    holder[key] = (name, new) if isinstance(holder, Pairs) else new


def _places(value: Any) -> list[tuple[Any, int]]:
    """Every position in every list and object inside ``value``."""
    found, waiting = [], [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            found += [(each, position) for position in range(len(each))]
            waiting += [item[1] for item in each] if isinstance(each, Pairs) else each
    return found


def _dump(value: Any) -> str:
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(key)}: {_dump(each)}" for key, each in value) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_dump, value))}]"
    return str(value) if isinstance(value, Raw) else json.dumps(value)


def _change_table(data: bytes, random: Random) -> bytes:
    """Change, repeat, drop or move a row, or one of its cells; or repeat or drop a column."""
    rows = data.split(b"\n")
    chosen = random.randrange(len(rows))
    separator = b"\t" if b"\t" in rows[0] else b"," if b"," in data else b" "
    cells = rows[chosen].split(separator)
    kind = random.random()
    if kind < 0.08:
        del rows[chosen]
    elif kind < 0.16:
        rows.insert(random.randrange(len(rows) + 1), rows[chosen])
    elif kind < 0.2:
        rows[chosen] = random.choice(rows)
    elif kind < 0.25:
        column = random.randrange(len(cells))
        rows = [separator.join(row.split(separator)[:column] + row.split(separator)[column + 1 :]) for row in rows]
    elif kind < 0.3:
        cells.append(random.choice(cells))
        rows[chosen] = separator.join(cells)
    else:
        new = random.choice(CELLS).encode() if random.random() < 0.8 else random.choice(data.split() or [b""])
        cells[random.randrange(len(cells))] = new
        rows[chosen] = separator.join(cells)
    return b"\n".join(rows)


_WORD = re.compile(rb"-?[0-9][0-9.e+-]*|[A-Za-z_]+|\"[^\"]*\"|[][{},]|\n")


def _change_word(data: bytes, random: Random) -> bytes | None:
    words = list(_WORD.finditer(data))
    if not words:
        return None
    word = random.choice(words)
    new = random.choice((*TOKENS, *CELLS)).encode() if random.random() < 0.7 else random.choice(words)[0]
    return data[: word.start()] + new + data[word.end() :]
