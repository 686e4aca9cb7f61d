"""Labels of any hashable type: as a list, as an array, and as JSON."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import date
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from onebyone.errors import UsageError, warn

Label = Hashable
PLAIN = {bool, int, str}
USUAL = (*PLAIN, tuple)
SORTED = (bool, int, float, str, tuple)  # other types may have no total order and stay in order of arrival


def as_labels(y: Any, known: Sequence[Label] = (), name: str = "y") -> list[Label]:
    """One label per sample, as Python values, none missing. All must have one type, that of the ``known`` labels.

    ``name`` is what the user calls ``y``.

    >>> as_labels(np.array([2, 1])), as_labels([("cat", 3), ("dog", 1)])
    ([2, 1], [('cat', 3), ('dog', 1)])
    >>> as_labels(["cat", 3])
    Traceback (most recent call last):
        ...
    onebyone.errors.UsageError: y has labels of different types (int, str); give all of them one type
    """
    if y is None:
        raise UsageError(
            "OnlineClassifier requires y to be passed, but the target y is None; give one label per sample"
        )
    labels = list(y) if isinstance(y, (list, tuple)) else _column(y)
    if not {type(label) for label in labels} <= PLAIN:
        labels = [plain(label) for label in labels]
        for position, label in enumerate(labels):
            if type(label) not in USUAL:
                _check_usable(label, f"{name}[{position}]")
    kinds = {type(label) for label in labels} | {type(label) for label in known[:1]}
    _check_one(kinds, name)
    if kinds <= PLAIN:
        return labels
    if kinds == {float} and not all(float.is_integer(label) for label in labels):  # type: ignore[arg-type]
        raise UsageError("Unknown label type: continuous. y has labels that are not whole numbers; give class labels")
    try:
        hash(tuple(labels))
    except TypeError:
        raise UsageError(
            f"y has labels of type {type(labels[0]).__name__}, which cannot be hashed; give strings, numbers or tuples"
        ) from None
    return labels


def check_comparable(labels: Sequence[Label], known: Sequence[Label]) -> None:
    """Raise an error if labels can never equal the known ones, such as strings and numbers. 1.0 equals 1.

    >>> check_comparable([1.0, 7.0], [0, 1])
    >>> check_comparable(["1", "7"], [0, 1])
    Traceback (most recent call last):
        ...
    onebyone.errors.UsageError: y has labels of different types (int, str); give all of them one type
    """
    kinds = {type(label) for label in (*labels[:1], *known[:1])}
    if not all(issubclass(kind, Number) for kind in kinds):
        _check_one(kinds, "y")


def as_array(labels: Sequence[Label]) -> npt.NDArray[Any]:
    """The labels as an array [n], of a native NumPy type if that does not change their values.

    >>> as_array(["b", "a"]), as_array([(1, 2)])
    (array(['b', 'a'], dtype='<U1'), array([(1, 2)], dtype=object))
    """
    booleans = {isinstance(label, bool) for label in labels}
    if len(booleans) == 1 and all(isinstance(label, (bool, int, float, str)) for label in labels):
        array = np.array(labels)
        if array.tolist() == labels:
            return array
    array = np.empty(len(labels), dtype=object)
    for position, label in enumerate(labels):  # one by one: NumPy would unpack tuples of one length
        array[position] = label
    return array


def in_order(labels: Sequence[Label]) -> list[int]:
    """The positions in ``labels`` of the classes in the order of ``classes_``: sorted, or in order of arrival.

    >>> in_order(["b", "c", "a"])
    [2, 0, 1]
    """
    positions = list(range(len(labels)))
    if isinstance(labels[0], SORTED):
        try:
            return sorted(positions, key=lambda position: labels[position])  # type: ignore[arg-type, return-value]
        except TypeError:  # tuples of different types
            pass
    return positions


def to_json(label: Label) -> Any:
    """A label as a JSON value. A tuple becomes an object, to be distinguished from a list."""
    if label is None or isinstance(label, (bool, int, float, str)):
        return label
    if isinstance(label, tuple):
        return {"tuple": [to_json(part) for part in label]}
    raise UsageError(
        f"a label of type {type(label).__name__} cannot be saved; use strings, numbers, None or tuples of them"
    )


def from_json(found: Any) -> Label:
    """The label that ``to_json`` returned this value for. Any other value raises a UsageError.

    >>> from_json(to_json(("cat", (1, None))))
    ('cat', (1, None))
    """
    match found:
        case None | bool() | int() | float() | str():
            return found
        case {"tuple": [*parts]}:
            return tuple(from_json(part) for part in parts)
    raise UsageError(f"{found!r} is not a label")


def _check_usable(label: Label, place: str) -> None:
    """Raise an error for a value that stands for no label, and for bytes, which could not be saved."""
    # Missing values of floats and dates equal nothing, and pandas' NA has no truth value.
    if label is None or type(label).__name__ == "NAType" or (isinstance(label, (float, date)) and label != label):
        raise UsageError(f"{place} is {label}, a missing label; leave the sample out, or give a label such as 'none'")
    if isinstance(label, (bytes, bytearray)):
        raise UsageError(f"{place} is {label!r}; give text instead of bytes: [label.decode() for label in y]")


def _check_one(kinds: set[type], name: str) -> None:
    if len(kinds) > 1:
        types = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise UsageError(f"{name} has labels of different types ({types}); give all of them one type")


def plain(label: Any) -> Label:
    """A label as a Python value."""
    if isinstance(label, Tensor) and label.dim():  # hashed by identity, so that each would be a class of its own
        raise UsageError(f"y has a label that is a tensor of shape {tuple(label.shape)}; give one value per sample")
    if isinstance(label, (np.datetime64, np.timedelta64)):  # their Python values are plain integers for some units
        raise UsageError(
            f"y has labels of type {type(label).__name__}; give them as strings: np.asarray(y).astype(str)"
        )
    if type(label) is tuple:
        return tuple(map(plain, label))
    return label.item() if isinstance(label, (np.generic, Tensor)) else label


def _column(y: Any) -> list[Label]:
    array = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y)
    if array.ndim == 2 and array.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        message = "A column-vector y was passed when a 1d array was expected; give y the shape [n]"
        warn(message, DataConversionWarning)
        array = array[:, 0]
    if array.ndim != 1:
        raise UsageError(f"y has shape {array.shape}; give one label per sample, as a list or an array [n]")
    if array.dtype.kind == "c":
        raise UsageError("Complex data not supported: y has complex labels; give strings or whole numbers")
    return list(array) if array.dtype.kind in "mM" else array.tolist()  # tolist may turn dates into integers
