"""Files that are read back say so when they are not as they were written."""

import json
import os
import random
from contextlib import suppress
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from safetensors.numpy import save

from fedce.base.config import Config
from fedce.base.errors import ConfigError, RunError
from fedce.base.files import read_sealed, read_tensors, write_sealed, write_tensors
from fedce.base.identity import Identity
from fedce.record.folder import RunFolder

ARRAYS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array(7, np.float32)}
ABOUT = {"round_no": 3, "rho": {"north": 0.1, "south": 0.9}, "by_seed": {0: 1.5}, "note": "é"}


def flips(content: bytes, n: int):
    """The content with one bit changed, at each of n places or at all."""
    places = range(8 * len(content))
    for place in places if len(places) <= n else random.Random(0).sample(places, n):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        yield bytes(changed)


def test_any_bit_changed_in_a_tensor_file_is_told_or_changes_nothing(tmp_path: Path):
    file = tmp_path / "state.safetensors"
    write_tensors(file, ARRAYS, ABOUT)
    whole = read_tensors(file)
    content, told = file.read_bytes(), []
    for changed in flips(content, 10**6):
        file.write_bytes(changed)
        try:
            arrays, about = read_tensors(file, "; delete it")
        except RunError as error:
            told.append(str(error))
            continue
        assert all(about[key] == value for key, value in whole[1].items())
        assert arrays.keys() == ARRAYS.keys()
        assert all(np.array_equal(arrays[name], whole[0][name]) for name in ARRAYS)
    assert all(line.endswith("; delete it") and "\n" not in line for line in told)
    assert len(told) > 0.9 * 8 * len(content)


def test_a_tensor_file_is_the_same_bytes_for_the_same_content(tmp_path: Path):
    for name in ("one", "other"):
        write_tensors(tmp_path / name, dict(sorted(ARRAYS.items(), reverse=name == "one")), ABOUT)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_any_bit_changed_in_a_sealed_file_is_told_or_changes_nothing(tmp_path: Path):
    file = tmp_path / "results.json"
    write_sealed(file, ABOUT)
    whole = read_sealed(file)
    assert whole == json.loads(json.dumps(ABOUT))
    for changed in flips(file.read_bytes(), 10**6):
        file.write_bytes(changed)
        try:
            found = read_sealed(file)
        except RunError:
            continue
        assert all(found[key] == value for key, value in whole.items())
    file.write_text(json.dumps({**ABOUT, "round_no": 4, "digest": "0" * 64}))
    with pytest.raises(RunError, match=r"results\.json was changed since it was written"):
        read_sealed(file)


def test_files_of_earlier_versions_have_no_digest_and_are_read(tmp_path: Path):
    (tmp_path / "results.json").write_text('{"rounds": 3}')
    assert read_sealed(tmp_path / "results.json") == {"rounds": 3}
    (tmp_path / "state.safetensors").write_bytes(save(ARRAYS, metadata={"about": '{"round_no": 3}'}))
    arrays, about = read_tensors(tmp_path / "state.safetensors")
    assert about == {"round_no": 3}
    assert np.array_equal(arrays["b"], ARRAYS["b"])


def test_a_key_with_a_bit_changed_is_not_taken_for_another_key(tmp_path: Path):
    file = tmp_path / "key.pem"
    public = Identity.at(file).public
    content = file.read_bytes()
    for changed in flips(content, 200):
        file.write_bytes(changed)
        with suppress(ConfigError):
            assert Identity.at(file).public == public
    # One that another program made does not say whose it is.
    file.write_bytes(content.partition(b"Public")[0])
    assert Identity.at(file).public == public


def left_by_a_killed_creation() -> list[list[str]]:
    """What may lie in a run folder, after each step of its creation."""
    return [[], [".lock"], [".lock", ".config.toml.4711.tmp"], [".lock", f".config.toml.{os.getpid()}.tmp"]]


@pytest.mark.parametrize("left", left_by_a_killed_creation())
def test_what_a_killed_creation_left_is_swept(tmp_path: Path, left):
    out = tmp_path / "run"
    out.mkdir()
    for name in left:
        (out / name).write_text("seed = ")
    run = RunFolder.create(out, Config())
    assert run.is_one
    assert sorted(path.name for path in out.iterdir()) == [".lock", "config.toml"]


def test_what_somebody_else_is_creating_is_left_alone(tmp_path: Path):
    (tmp_path / ".config.toml.4711.tmp").write_text("seed = ")
    ready, done = os.pipe(), os.pipe()
    if not (child := os.fork()):
        with RunFolder(tmp_path).lock():
            os.write(ready[1], b".")
            os.read(done[0], 1)
            os._exit(0)
    os.read(ready[0], 1)
    with pytest.raises(RunError, match="another process is working on"):
        RunFolder.create(tmp_path, Config())
    assert (tmp_path / ".config.toml.4711.tmp").exists()
    os.write(done[1], b".")
    os.waitpid(child, 0)
    assert RunFolder.create(tmp_path, Config()).is_one


def test_a_coordinator_waits_until_the_one_before_has_ended(tmp_path: Path):
    ready = os.pipe()
    if not (child := os.fork()):
        with RunFolder(tmp_path).lock():
            os.write(ready[1], b".")
            sleep(0.5)
            os._exit(0)
    os.read(ready[0], 1)
    with pytest.raises(RunError, match="another process is working on"), RunFolder(tmp_path).lock(patience=0.1):
        pass
    with RunFolder(tmp_path).lock(patience=30):
        assert os.waitpid(child, 0) == (child, 0)


def test_a_new_run_folder_is_its_owners_alone(tmp_path: Path):
    before = os.umask(0o022)
    try:
        RunFolder.create(tmp_path / "runs" / "new", Config())
        (tmp_path / "shared").mkdir(mode=0o755)
        RunFolder.create(tmp_path / "shared", Config())
    finally:
        os.umask(before)
    assert (tmp_path / "runs" / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755, "whoever made it chose who may look into it"
