"""Files of a few kilobytes take little memory, whatever they claim.

The bombs are sized so that a reader without a budget takes between one and four gigabytes: enough to be seen, and not
so much that the limit of the system refuses it instead of the reader.
"""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import zipfile
import zlib

import numpy as np
import pytest

import joao
from tests.faults.harness import GIGABYTE, assert_bounded, assert_one_line, call, run

LONG = 30_000  # letters of one label; 10,000 labels of this width are 1.2 GB
COUNT = 10_000


def _json_node_labels(path):
    labels = ["C" * LONG, *("C" for _ in range(COUNT - 1))]
    path.write_text(json.dumps({"edges": [[0, 1]], "node_labels": labels}) + "\n")


def _json_classes(path):
    lines = [{"edges": [], "num_nodes": 1, "label": "C" * (LONG if number == 0 else 1)} for number in range(COUNT)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _graphml_node_labels(path):
    nodes = "".join(
        f'<node id="n{number}"><data key="d0">{"C" * (LONG if number == 0 else 1)}</data></node>'
        for number in range(COUNT)
    )
    path.write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        '<key id="d0" for="node" attr.name="label" attr.type="string"/>'
        f'<graph edgedefault="undirected">{nodes}<edge source="n0" target="n1"/></graph></graphml>'
    )


def _edge_list_classes(path):
    rows = (f"{number},a,b,{'C' * (LONG if number == 0 else 1)}\n" for number in range(COUNT))
    path.write_text("graph,source,target,label\n" + "".join(rows))


BOMBS_OF_TEXT = {
    "node labels.jsonl": _json_node_labels,
    "classes.jsonl": _json_classes,
    "node labels.graphml": _graphml_node_labels,
    "classes.csv": _edge_list_classes,
}


@pytest.mark.parametrize("name", BOMBS_OF_TEXT)
def test_one_long_label_does_not_widen_all_others(name, tmp_path):
    BOMBS_OF_TEXT[name](tmp_path / name)
    assert (tmp_path / name).stat().st_size < 2_000_000
    assert_bounded(run("data", tmp_path / name))


def test_one_long_label_of_graphs_in_memory(tmp_path):
    def read():
        import networkx

        graph = networkx.path_graph(COUNT)
        networkx.set_node_attributes(graph, {node: "C" * (LONG if node == 0 else 1) for node in graph}, "label")
        joao.read([graph])

    assert_bounded(call(read))


def test_an_honest_long_label_is_read(tmp_path):
    """Nothing is wrong with it; it only may not cost its length once for every other node."""
    labels = ["C" * 20_000, *("CNO"[number % 3] for number in range(15_000))]
    path = tmp_path / "honest.jsonl"
    path.write_text(json.dumps({"edges": [[0, 1]], "node_labels": labels}) + "\n")

    def read():
        dataset = joao.read(path)
        assert dataset.num_nodes == len(labels)
        assert [str(label) for label in np.ravel(dataset.node_labels)[:4]] == labels[:4]

    ended = call(read)
    assert_bounded(ended)
    assert ended.code == 0, ended.err


def _gzip_with_comment(text: bytes, comment: int) -> bytes:
    """A file of gzip whose header has a comment of so many letters, which make it large and the archive not."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packer.compress(text) + packer.flush()
    head = b"\x1f\x8b\x08\x10" + bytes(6) + b"c" * comment + b"\0"
    return head + body + struct.pack("<II", zlib.crc32(text), len(text) & 0xFFFFFFFF)


def _write_ogb(path, num_graphs=3, **parts):
    """Small graphs of two nodes in OGB's layout, with the given texts or files of gzip."""
    texts = {
        "raw/num-node-list": b"2\n" * num_graphs,
        "raw/num-edge-list": b"1\n" * num_graphs,
        "raw/edge": b"0,1\n" * num_graphs,
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in {
            **texts,
            **{key.replace("__", "/").replace("_", "-"): parts[key] for key in parts},
        }.items():
            packed = content if content[:2] == b"\x1f\x8b" else gzip.compress(content, 9)
            archive.writestr(f"data/{name}.csv.gz", packed)
    return path


def test_an_archive_of_compressed_files_by_hand_is_read(tmp_path):
    assert len(joao.read(_write_ogb(tmp_path / "ogb.zip"))) == 3


def test_files_in_an_archive_share_its_limit(tmp_path):
    """What is compressed twice may grow as much as what is compressed once: 64 MB, or 100 times the file on disk."""
    line = b" " * 13_000_000
    padded = {
        "raw__num_node_list": b"".join(line + b"2\n" for _ in range(3)),
        "raw__num_edge_list": b"".join(line + b"1\n" for _ in range(3)),
        "raw__edge": b"".join(line + b"0,1\n" for _ in range(3)),
    }
    path = _write_ogb(tmp_path / "ogb.zip", **padded)
    assert path.stat().st_size < 640_000  # 117 MB of text are then more than both limits
    assert_one_line(call(lambda: joao.read(path)))


def test_a_file_in_an_archive_cannot_raise_its_own_limit(tmp_path):
    """The limit of a compressed file in an archive is by the archive's size, not by what the archive claims."""
    text = (b" " * 1_000_000 + b"2\n") * 100
    path = _write_ogb(tmp_path / "ogb.zip", 100, raw__num_node_list=_gzip_with_comment(text, 2_000_000))
    assert path.stat().st_size < 200_000
    assert_one_line(call(lambda: joao.read(path)))


def test_blank_lines_in_an_archive_take_little_memory(tmp_path):
    features = b"5,0,1,0,0,0,0,0,0\n" * 6
    bonds = b"0,0,0\n" * 3
    mapping = b"smiles\n" + b"\n" * 10_000_000
    parts = {"raw__node_feat": features, "raw__edge_feat": bonds, "mapping__mol": mapping}
    path = _write_ogb(tmp_path / "ogb.zip", **parts)
    assert path.stat().st_size < 100_000
    assert_bounded(call(lambda: joao.read(path), deadline=20))


WIDE = 100_000_000  # columns of 4 rows are 1.6 GB


def _with_edge_features(text: str) -> str:
    return json.dumps({**json.loads(text), "num_edge_features": WIDE})


def test_edge_features_that_no_data_have_take_no_memory(trained, graphs, tmp_path):
    run_folder = tmp_path / "run"
    shutil.copytree(trained, run_folder)
    (run_folder / "run.json").write_text(_with_edge_features((run_folder / "run.json").read_text()))
    assert_bounded(run("embed", run_folder, graphs, "--out", "out.csv"))


def test_edge_features_of_an_export_take_no_memory(exported, graphs, tmp_path):
    content = exported.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    metadata = header["__metadata__"]
    metadata["run.json"] = _with_edge_features(metadata["run.json"])
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(packed).to_bytes(8, "little") + packed + content[8 + size :])
    assert_bounded(run("embed", path, graphs, "--out", "out.csv"))
    assert_bounded(run("report", path, "--out", "out.html"))
    assert_bounded(run("export", path, "--out", "again.safetensors"))


CONVOLUTIONS = ("GCNConv", "GATConv", "SAGEConv")  # the last one has a size without being built


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_convolutions_are_no_larger_than_their_weights(convolution, graphs, tmp_path):
    """Also those whose size torch cannot find out without building them."""
    pytest.importorskip("torch_geometric")
    options = ["--set", "encoder.name=convolutions", "--set", f"encoder.convolution={convolution}"]
    small = ["--set", "encoder.width=4", "--set", "encoder.layers=2"]
    made = run("pretrain", graphs, "--out", "run", "--epochs", 1, "--device", "cpu", *options, *small, deadline=60)
    assert made.code == 0, made.err
    recipe = tmp_path / "run" / "recipe.toml"
    assert recipe.read_text().count("width = 4") == 1
    recipe.write_text(recipe.read_text().replace("width = 4", "width = 8000"))  # a layer of 256 MB
    ended = run("embed", "run", graphs, "--out", "out.csv", deadline=20)
    assert_bounded(ended, GIGABYTE // 8)
    assert_one_line(ended)


def test_34_bytes_do_not_make_a_gigabyte(trained, tmp_path):
    path = tmp_path / "bare.jsonl"
    path.write_text('{"edges":[],"num_nodes":16777216}\n')
    assert path.stat().st_size <= 34
    for ended in (
        run("data", path, deadline=20),
        run("embed", trained, path, "--out", "out.csv", deadline=20),
        run("pretrain", path, "--out", "out", "--epochs", 1, deadline=20),
    ):
        assert_bounded(ended)


def test_as_many_labels_as_nodes_do_not_make_a_square(tmp_path):
    """A column for each label is a byte for each node and label: 1.6 GB of half a megabyte."""
    path = tmp_path / "labels.jsonl"
    path.write_text(json.dumps({"edges": [[0, 1]], "node_labels": list(range(40_000))}) + "\n")
    lines = path.read_text() + '{"edges": [[0, 1]], "node_labels": [0, 1]}\n'
    path.write_text(lines)
    assert_bounded(run("pretrain", path, "--out", "out", "--epochs", 1, deadline=20))


def test_labels_of_edges_do_not_take_a_thousand_columns_each(tmp_path):
    """Three megabytes of edges with 1,000 labels are 1.2 GB as columns."""
    count, nodes = 300_000, 1_000
    pairs = np.arange(count)
    sources, targets = pairs // (nodes - 1), pairs % (nodes - 1)
    targets = targets + (targets >= sources)
    folder = tmp_path / "TINY"
    folder.mkdir()
    np.savetxt(folder / "TINY_A.txt", np.stack([sources + 1, targets + 1], axis=1), fmt="%d", delimiter=", ")
    np.savetxt(folder / "TINY_graph_indicator.txt", np.ones(nodes), fmt="%d")
    np.savetxt(folder / "TINY_edge_labels.txt", pairs % 1000, fmt="%d")
    assert_bounded(call(lambda: joao.read(folder), deadline=20))
