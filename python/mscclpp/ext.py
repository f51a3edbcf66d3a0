"""Collections of algorithms, under the name of MSCCL++'s module."""

from ._algorithms import AlgorithmCollectionBuilder

__all__ = ["AlgorithmCollectionBuilder"]
