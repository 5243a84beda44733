"""Arrays computed from a version, such as the fitted method, kept on disk so that a new process need not compute them.

A store has one such file, for the version that answered last. It is optional: a missing or damaged file, or one of
another version or another erda, is ignored, and the arrays are computed from what was taught. Its first bytes are a
digest of the rest, keyed with the identity of the version. `Store.prune` removes it. NumPy is loaded at first use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from erda import __version__
from erda.app.store import DERIVED, Store
from erda.errors import ErdaError
from erda.files import locked, write_bytes

if TYPE_CHECKING:
    import numpy as np

FORMAT = 5  # raise it whenever the same examples lead to other arrays
LEAST_BYTES = 1_000_000  # smaller arrays are computed faster than they are written
SEAL_BYTES = 32


class DerivedArrays:
    """The derived arrays of one version of a store, by name."""

    def __init__(self, store: Store, identity: str) -> None:
        self._store, self._identity = store, identity

    def load(self) -> dict[str, np.ndarray] | None:
        """Read the arrays; None if they are not on disk or cannot be trusted."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        with suppress(OSError, SafetensorError):
            found = (self._store.folder / DERIVED).read_bytes()
            if found[:SEAL_BYTES] == self._seal(found[SEAL_BYTES:]):
                return load(found[SEAL_BYTES:])
        return None

    def save(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Write the arrays if they are large and the version is current; a store that cannot be written stays as is."""
        from safetensors.numpy import save

        if sum(array.nbytes for array in arrays.values()) < LEAST_BYTES:
            return
        content = save(dict(arrays))
        with suppress(ErdaError):  # read-only, full disk, gone, or locked by a process that teaches
            if self._store.head().identity == self._identity:
                with locked(self._store.folder, busy="busy", wait=0):
                    if self._store.head().identity == self._identity:
                        write_bytes(self._store.folder / DERIVED, self._seal(content) + content)

    def _seal(self, content: bytes) -> bytes:
        key = hashlib.sha256(f"{FORMAT} {__version__} {self._identity}".encode()).digest()
        return hashlib.blake2b(content, key=key, digest_size=SEAL_BYTES).digest()
