"""Scellis trains neural networks through WGSL compute kernels on whatever GPU is there."""

__version__ = "0.1.0"
