"""Files that are either whole or not there: written aside, synced, renamed. No pickle."""

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import file_digest
from io import StringIO
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as tensors_to_bytes

from fedce.errors import RunError

Arrays = Mapping[str, NDArray[Any]]


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
    """A folder that only its owner may look into, also where it was there before."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes) -> None:
    """A file that only its owner may read, from its first instant on; one that is there already stays as it is."""
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


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two values of one key, two readers may take different ones."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def write_tensors(path: Path, arrays: Arrays, about: Mapping[str, Any]) -> None:
    """Arrays and a JSON value in one safetensors file."""
    write_bytes(path, tensors_to_bytes(dict(arrays), metadata={"about": json.dumps(about, allow_nan=False)}))


def read_tensors(path: Path, hint: str = "") -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and the JSON value; `hint` says what to do about a file that is not whole."""
    with _opened(path, hint) as file:
        return {key: file.get_tensor(key) for key in file.keys()}, _about(file)  # noqa: SIM118 (not a mapping)


def read_about(path: Path) -> dict[str, Any]:
    """The JSON value of a safetensors file, without its arrays."""
    with _opened(path) as file:
        return _about(file)


def _about(file: Any) -> dict[str, Any]:
    about = json.loads((file.metadata() or {}).get("about", "{}"))
    if not isinstance(about, dict):
        raise ValueError("what it says about itself is no JSON object")
    return about


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
    """A header and rows as CSV; what is None is left empty."""
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
