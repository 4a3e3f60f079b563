"""Run folders: whole or marked, owner only, and damage is noticed."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from colonnade.errors import IntegrityError, PeerError, StorageError, UsageError
from colonnade.party.run_folder import RunFolder, list_runs


def finished(base: Path, run_id: str = "run-1") -> Path:
    with RunFolder.create(base, run_id) as run:
        run.write_json("report.json", {"auc": 0.75, "epochs": [1, 2], "note": "Zürich", "x": None})
        run.write_text("log.txt", "done\n")
        run.write_tensors("share.safetensors", {"u": np.arange(6.0).reshape(2, 3)}, {"half": "a"})
    return run.path


def test_finished_run_reads_back(tmp_path: Path) -> None:
    path = finished(tmp_path / "runs")
    assert path == tmp_path / "runs" / "run-1"
    run = RunFolder.open(path)
    assert run.finished
    assert run.run_id == "run-1"
    assert run.read_json("report.json") == {
        "auc": 0.75,
        "epochs": [1, 2],
        "note": "Zürich",
        "x": None,
    }
    tensors, metadata = run.read_tensors("share.safetensors")
    np.testing.assert_array_equal(tensors["u"], np.arange(6.0).reshape(2, 3))
    assert metadata == {"half": "a"}


def test_only_the_owner_can_read(tmp_path: Path) -> None:
    path = finished(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o600}


def test_nothing_has_the_final_name_before_finish(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "run-1")
    run.write_text("log.txt", "x")
    assert [entry.state for entry in list_runs(tmp_path)] == ["partial"]
    with pytest.raises(IntegrityError, match="did not finish"):
        RunFolder.open(tmp_path / "run-1")
    with pytest.raises(IntegrityError, match="did not finish"):
        RunFolder.open(run.path)
    assert run.finish() == tmp_path / "run-1"
    assert not (tmp_path / "run-1.partial").exists()


def test_crash_between_write_and_rename_leaves_the_partial_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder.create(tmp_path, "run-1")
    run.write_text("log.txt", "x")

    def crash(path: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", crash)
    with pytest.raises(KeyboardInterrupt):
        run.finish()
    assert [entry.state for entry in list_runs(tmp_path)] == ["partial"]


def test_a_write_that_breaks_off_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder.create(tmp_path, "run-1")
    run.write_text("log.txt", "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"log\.txt: No space left on device"):
            run.write_text("log.txt", "new")
    assert [file.name for file in run.path.iterdir()] == ["log.txt"]
    assert run.read_bytes("log.txt") == b"old"


def test_failed_run_says_why(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "run-1")
    with pytest.raises(PeerError), run:
        raise PeerError("the other side stopped")
    assert run.path == tmp_path / "run-1.failed"
    assert (run.path / "error.txt").read_text() == "PeerError: the other side stopped\n"
    assert [entry.state for entry in list_runs(tmp_path)] == ["failed"]
    with pytest.raises(IntegrityError, match="did not finish"):
        RunFolder.open(tmp_path / "run-1")
    with pytest.raises(UsageError, match="is over"):
        run.write_text("late.txt", "x")


def test_unexpected_errors_leave_their_traceback(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), RunFolder.create(tmp_path, "run-1") as run:
        print(1 // 0)
    text = (run.path / "error.txt").read_text()
    assert "Traceback" in text
    assert "ZeroDivisionError" in text


def test_a_reason_cannot_steer_a_terminal(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "run-1")
    run.fail("line one\n\x1b]0;title\x07line two")
    assert (run.path / "error.txt").read_text() == "line one\n?]0;title?line two\n"


def test_on_a_full_disk_the_first_error_is_the_one_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    run = RunFolder.create(tmp_path, "run-1")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PeerError, match="stopped"), run:
        raise PeerError("the other side stopped")
    assert [entry.state for entry in list_runs(tmp_path)] == ["partial"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"run-1\.partial"):
        RunFolder.create(tmp_path / "file", "run-1")


@pytest.mark.parametrize("suffix", ["", ".partial", ".failed"])
def test_existing_runs_are_not_touched(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"run-1{suffix}").mkdir()
    with pytest.raises(UsageError, match="exists"):
        RunFolder.create(tmp_path, "run-1")


@pytest.mark.parametrize("run_id", ["", "..", "a/b", "run.partial", "-x", "a\n"])
def test_bad_run_ids(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(UsageError, match="run id"):
        RunFolder.create(tmp_path, run_id)


@pytest.mark.parametrize("name", ["", "..", "a/b", "manifest.json", ".hidden", "a\n"])
def test_bad_file_names(tmp_path: Path, name: str) -> None:
    run = RunFolder.create(tmp_path, "run-1")
    with pytest.raises(UsageError, match="file name"):
        run.write_text(name, "x")


def test_finishing_twice_is_an_error(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "run-1")
    run.finish()
    with pytest.raises(UsageError, match="over already"):
        run.finish()
    with pytest.raises(UsageError, match="is over"):
        run.fail("too late")


@pytest.mark.parametrize(
    "value", [{1: "x"}, {"x": {"y": float("nan")}}, [np.float64(1)], {"x": object()}, {"x": b""}]
)
def test_json_takes_plain_types_only(tmp_path: Path, value: object) -> None:
    run = RunFolder.create(tmp_path, "run-1")
    with pytest.raises(UsageError, match=r"report\.json"):
        run.write_json("report.json", value)
    assert list(run.path.iterdir()) == []


@settings(derandomize=True, max_examples=25, deadline=None)
@given(
    array=st.sampled_from(["<f8", ">u8", "<u8", "<i4", "?", "<f4"]).flatmap(
        lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, min_side=0, max_side=4))
    )
)
def test_tensors_round_trip(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    run = RunFolder.create(tmp_path_factory.mktemp("runs"), "run-1")
    run.write_tensors("t.safetensors", {"a": array, "transposed": array.T}, {})
    tensors, metadata = run.read_tensors("t.safetensors")
    np.testing.assert_array_equal(tensors["a"], array)
    np.testing.assert_array_equal(tensors["transposed"], array.T)
    assert tensors["a"].dtype == array.dtype.newbyteorder("=")
    assert metadata == {}


def test_tensors_of_objects_are_refused(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "run-1")
    with pytest.raises(UsageError, match="dtype object for 'a'"):
        run.write_tensors("t.safetensors", {"a": np.array([None])}, {})


@pytest.mark.parametrize("position", [0, 9, 60, -1])
def test_a_changed_byte_is_noticed(tmp_path: Path, position: int) -> None:
    path = finished(tmp_path)
    file = path / "share.safetensors"
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)
    with pytest.raises(IntegrityError, match=r"share\.safetensors is not the file"):
        RunFolder.open(path).read_tensors("share.safetensors")


def test_missing_files_and_manifest_are_noticed(tmp_path: Path) -> None:
    path = finished(tmp_path)
    with pytest.raises(IntegrityError, match=r"cannot read .*other\.json"):
        RunFolder.open(path).read_json("other.json")
    (path / "foreign.json").write_text("{}")
    with pytest.raises(IntegrityError, match=r"foreign\.json is not the file"):
        RunFolder.open(path).read_json("foreign.json")
    (path / "log.txt").unlink()
    with pytest.raises(IntegrityError, match=r"log\.txt is missing"):
        RunFolder.open(path)
    (path / "manifest.json").unlink()
    with pytest.raises(IntegrityError, match=r"manifest\.json"):
        RunFolder.open(path)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "sha256": {"a": 1}}']
)
def test_bad_manifests(tmp_path: Path, text: str) -> None:
    path = finished(tmp_path)
    (path / "manifest.json").write_text(text)
    with pytest.raises(IntegrityError, match=r"manifest\.json"):
        RunFolder.open(path)


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0{]", b"{}"])
def test_damaged_files_of_an_unfinished_run(tmp_path: Path, data: bytes) -> None:
    run = RunFolder.create(tmp_path, "run-1")
    run.write_bytes("t.safetensors", data)
    with pytest.raises(IntegrityError, match=r"t\.safetensors is damaged"):
        run.read_tensors("t.safetensors")
    run.write_bytes("t.json", b"\xff{")
    with pytest.raises(IntegrityError, match=r"t\.json is not JSON"):
        run.read_json("t.json")


def test_list_runs_is_by_id_and_leaves_other_folders_out(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "none") == ()
    finished(tmp_path, "b")
    RunFolder.create(tmp_path, "c")
    RunFolder.create(tmp_path, "a").fail("stopped")
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    found = [(entry.run_id, entry.state) for entry in list_runs(tmp_path)]
    assert found == [("a", "failed"), ("b", "finished"), ("c", "partial")]
