import os

from repro.benchmarks import measure as measuring
from repro.benchmarks.plan import Plan


def test_reading_without_with_empty_and_with_full_cache(monkeypatch, tmp_path):
    seen = []

    def run(command, *, env, check):
        seen.append((command[-2:], env["JOAO_CACHE"], len(os.listdir(env["JOAO_CACHE"])) if seen else None))
        if env["JOAO_CACHE"] != "off":
            open(os.path.join(env["JOAO_CACHE"], "packed"), "w").close()

    monkeypatch.setattr(measuring.subprocess, "run", run)
    record = measuring.measure_reading(Plan(quick=True, data_root=str(tmp_path)))
    assert [each[0] for each in seen] == [["MUTAG", str(tmp_path)]] * 3
    assert [each[1] for each in seen] == ["off", seen[1][1], seen[1][1]]
    assert [each[2] for each in seen] == [None, 0, 1]
    assert list(record["MUTAG"]) == ["not kept", "first time", "second time"]


def test_every_data_set_is_read_in_its_own_process():
    record = measuring.measure_reading(Plan(quick=True))
    assert all(each["CPU seconds"] > 0 for each in record["MUTAG"].values())


def test_missing_data_set_is_reported(tmp_path):
    record = measuring.measure_reading(Plan(data_root=str(tmp_path)))
    assert {name: list(found) for name, found in record.items()} == {name: ["not measured"] for name in measuring.READ}
