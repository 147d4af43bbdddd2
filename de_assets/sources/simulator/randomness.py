"""Chance that is the same in every process: seeded generators, and a hash for values that must agree between hours."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import numpy.typing as npt

UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]


def generator(seed: int, stream: str, moment: str = "") -> np.random.Generator:
    """A generator of its own for each (seed, stream, moment); Python's `hash` would differ between processes."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(_digest(seed, stream, moment), "big")))


def salt(seed: int, stream: str) -> np.uint64:
    """A constant of 64 bits for each (seed, stream)."""
    return np.uint64(int.from_bytes(_digest(seed, stream, "")[:8], "big"))


def mixed(values: UInt64s) -> UInt64s:
    """SplitMix64's finaliser: a bijection, so that distinct values stay distinct, whose bits look random."""
    out = values + np.uint64(0x9E3779B97F4A7C15)
    out = (out ^ (out >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    out = (out ^ (out >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return out ^ (out >> np.uint64(31))


def _digest(seed: int, stream: str, moment: str) -> bytes:
    return hashlib.sha256(json.dumps([seed, stream, moment]).encode()).digest()
