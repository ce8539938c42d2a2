"""Files that are either whole or not there: written aside, synced, renamed. No pickle."""

import csv
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as tensors_to_bytes

from fedce.base.errors import RunError

Arrays = Mapping[str, NDArray[Any]]
DIGEST = "digest"
"""The key of a JSON object that holds the SHA-256 of everything else, in files that are read back."""


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well, and vanishes when it does not."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        _sync(aside)
        aside.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise RunError(f"can't write {path}: {error.strerror or error}; nothing was changed there") from None
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    with writing(path) as aside:
        aside.write_bytes(content)


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def private_folder(path: Path) -> Path:
    """A folder that only its owner may look into, even if it was there before."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes) -> None:
    """A file that only its owner may read, from its first instant on; an existing file stays as it is."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        _sync(aside)
        with suppress(FileExistsError):  # Another process was first.
            os.link(aside, path)
        _sync(path.parent)
    except OSError as error:
        raise RunError(f"can't write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"), parse_constant=_no_number, object_pairs_hook=_each_once)
    except OSError as error:
        raise RunError(f"can't read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is not valid JSON ({error}); was it edited?") from None


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with the digest of its content in it."""
    return {**value, DIGEST: _digest(value)}


def unsealed(value: Any) -> dict[str, Any]:
    """What `sealed` was given; ValueError if the content was changed or never had a digest."""
    if not isinstance(value, dict) or DIGEST not in value or not _is_as_written(value := dict(value)):
        raise ValueError("the content does not match its digest")
    return value


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON object that is read back by `read_sealed`, with the digest of its content in it."""
    write_json(path, sealed(value))


def read_sealed(path: Path) -> Any:
    """What `write_sealed` wrote, without the digest."""
    value = read_json(path)
    if isinstance(value, dict) and not _is_as_written(value):
        raise RunError(f"{path} was changed since it was written: its content does not match its digest")
    return value


def _is_as_written(value: dict[str, Any], arrays: Arrays | None = None) -> bool:
    """Whether the content matches the digest, which is taken out; files of earlier versions have no digest."""
    if DIGEST not in value:
        return True
    try:
        return bool(value.pop(DIGEST) == _digest(value, arrays))
    except (ValueError, RecursionError):  # A number that JSON does not have, or nested too deeply: not ours.
        return False


def _digest(value: Mapping[str, Any], arrays: Arrays | None = None) -> str:
    """The digest of a JSON value, however it is spaced and ordered, and of arrays: names, types, shapes and bytes."""
    # Through JSON first, which makes all keys strings: they can be sorted.
    plain = json.loads(json.dumps(value, allow_nan=False))
    digest = sha256(json.dumps(plain, sort_keys=True).encode())
    for name, array in sorted((arrays or {}).items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is there twice: two readers may take different values for it."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def write_tensors(path: Path, arrays: Arrays, about: Mapping[str, Any]) -> None:
    """Arrays and a JSON object in one safetensors file, with the digest of both."""
    # One text: safetensors writes several in any order, and files of equal content should have equal bytes.
    text = json.dumps({**about, DIGEST: _digest(about, arrays)}, allow_nan=False)
    write_bytes(path, tensors_to_bytes(dict(arrays), metadata={"about": text}))


def read_tensors(path: Path, hint: str = "") -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and the JSON object; `hint` says what to do about a file that was changed."""
    with _opened(path, hint) as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
        about = json.loads((file.metadata() or {}).get("about", "null"))
        if not isinstance(about, dict):
            raise ValueError("it does not say what it is about")
    if not _is_as_written(about, arrays):
        raise RunError(f"{path} was changed since it was written: its content does not match its digest{hint}")
    return arrays, about


@contextmanager
def _opened(path: Path, hint: str = "") -> Iterator[Any]:
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except OSError as error:
        raise RunError(f"can't read {path}: {error.strerror or error}") from None
    except (SafetensorError, ValueError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is not a whole safetensors file ({error}){hint}") from None


def csv_text(table: Iterable[Sequence[Any]]) -> str:
    """A header and rows as CSV; None becomes an empty cell."""
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    return out.getvalue()


def append_line(path: Path, line: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"can't write {path}: {error.strerror or error}; the run can be resumed") from None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def locked(file: TextIO) -> bool:
    """Take the file's lock, which ends with this process; False if another process has it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
