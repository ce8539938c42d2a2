"""Frozen dataclasses to JSON and arrays, and back: one codec for everything that an algorithm keeps."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from fedce.core.params import Layout, Params, Vector

T = TypeVar("T")
Arrays = Mapping[str, Vector]


def encode(value: Any) -> tuple[Any, dict[str, Vector]]:
    """The value as JSON, and the arrays in it, each by its path in the value.

    >>> encode({"a": (1, 2.5)})
    ({'a': [1, 2.5]}, {})
    """
    arrays: dict[str, Vector] = {}
    return _encoded(value, "", arrays), arrays


def _encoded(value: Any, way: str, arrays: dict[str, Vector]) -> Any:
    if isinstance(value, Params):
        value = value.vector
    if isinstance(value, np.ndarray):
        arrays[way] = value
        return None
    if is_dataclass(value):
        return {one.name: _encoded(getattr(value, one.name), f"{way}/{one.name}", arrays) for one in fields(value)}
    if isinstance(value, Mapping):
        return {key: _encoded(part, f"{way}/{key}", arrays) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_encoded(part, f"{way}/{i}", arrays) for i, part in enumerate(value)]
    return value


def decode(like: T, about: Any, arrays: Arrays, layout: Layout) -> T:
    """A value of the type of `like`; where a field may be anything, the value (or type) in `like` says what it is.

    Content that does not fit is a ValueError.
    """
    try:
        decoded: T = _decoded(type(like), like, about, "", _Source(arrays, layout))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    return decoded


class _Source:
    def __init__(self, arrays: Arrays, layout: Layout) -> None:
        self.arrays, self.layout = arrays, layout


def _decoded(kind: Any, like: Any, about: Any, way: str, source: _Source) -> Any:
    if kind is Any:
        if like is None:
            return about
        kind = like if isinstance(like, type) else type(like)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return _decoded_union(arguments, like, about, way, source)
    if origin is Params:
        return Params(source.layout, source.arrays[way])
    if origin is np.ndarray:
        return source.arrays[way]
    if isinstance(origin, type) and is_dataclass(origin):
        return _decoded_dataclass(origin, like, about, way, source)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        inside = arguments[1] if arguments else Any
        return {key: _decoded(inside, None, part, f"{way}/{key}", source) for key, part in about.items()}
    if origin is tuple:
        return tuple(_decoded(arguments[0], None, part, f"{way}/{i}", source) for i, part in enumerate(about))
    if kind is float and isinstance(about, int) and not isinstance(about, bool):
        return float(about)
    if kind not in (NoneType, bool, int, float, str) or not isinstance(about, kind):
        raise ValueError(f"expected {getattr(kind, '__name__', kind)} at {way}, found {type(about).__name__}")
    return about


def _decoded_dataclass(kind: type, like: Any, about: Any, way: str, source: _Source) -> Any:
    hints = get_type_hints(kind)
    names = [one.name for one in fields(kind)]
    found = {
        name: _decoded(hints[name], getattr(like, name, None), about[name], f"{way}/{name}", source) for name in names
    }
    return kind(**found)


def _decoded_union(kinds: tuple[Any, ...], like: Any, about: Any, way: str, source: _Source) -> Any:
    """A value of a union with None; JSON holds None in place of an array, so the arrays are looked at first."""
    (kind,) = (one for one in kinds if one is not NoneType)
    is_there = about is not None or way in source.arrays
    return _decoded(kind, like, about, way, source) if is_there else None
