"""The inverse of a symmetric matrix to which products of rows are added."""

from __future__ import annotations

import torch
from torch import Tensor

APART = 16  # changes that are kept apart: writing the matrix takes longer than reading it


class Inverse:
    """The inverse of a positive definite matrix [d, d], which changes when a row's product with itself is added.

    A change subtracts the product of a vector with itself. The last few vectors are kept apart, and subtracted
    together.

    >>> inverse = Inverse(torch.eye(3) / 2)
    >>> solved, divisor = inverse.add(torch.tensor([0.0, 0.0, 2.0]))
    >>> inverse.matrix().diagonal(), inverse.times(torch.ones(1, 3))
    (tensor([0.5000, 0.5000, 0.1667]), tensor([[0.5000, 0.5000, 0.1667]]))
    """

    def __init__(self, matrix: Tensor) -> None:
        """``matrix`` [d, d] is the inverse; it will be changed."""
        self._matrix = matrix.contiguous()
        self._apart = matrix.new_zeros(APART, len(matrix))
        self._count = 0

    def matrix(self) -> Tensor:
        """[d, d]. It must not be changed."""
        if self._count:
            apart = self._apart[: self._count]
            self._matrix.addmm_(apart.T, apart, alpha=-1)
            self._count = 0
        return self._matrix

    def trace(self) -> float:
        return float(self._matrix.trace() - self._apart[: self._count].square().sum())

    def frozen(self) -> Inverse:
        """A copy that owns its matrix."""
        return Inverse(self.matrix().clone())

    def times(self, x: Tensor) -> Tensor:
        """[n, d] -> [n, d] the products of rows with the inverse."""
        if not self._count:
            return x @ self._matrix
        apart = self._apart[: self._count]
        return torch.addmm(x @ self._matrix, x @ apart.T, apart, alpha=-1)

    def add(self, row: Tensor) -> tuple[Tensor, float]:
        """Add the product of a row [d] with itself to the matrix.

        Returns the row times the inverse of before, and the number by which this must be divided to get the row times
        the new inverse.
        """
        if self._count == APART:
            self.matrix()
        apart = self._apart[: self._count]
        solved = torch.mv(self._matrix, row)
        solved -= (apart @ row) @ apart
        divisor = 1 + float(row @ solved)
        self._apart[self._count] = solved / divisor**0.5
        self._count += 1
        return solved, divisor
