"""Sizes given as one number or as one for each side, shared by the layers on images."""

from __future__ import annotations


def pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) of a size; one number stands for both."""
    return (size, size) if isinstance(size, int) else size
