"""Wait and transfer of each collective on each rank, and who came last.

wait: latest start over the ranks - own start. transfer: own end - latest start. Both after clocks were aligned. A
negative transfer cannot be: the pairing or the alignment is wrong there, or the operation does not hold its ranks
together (a broadcast's source may leave early). It stays what it is and is counted; nobody is blamed for that
collective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Where a rank did not take part.
ABSENT = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Waits:
    """Collectives of a group: a row for each of its ranks, a column for each collective; 0 where it is absent."""

    present: Bools
    wait_ns: Ints
    transfer_ns: Ints
    behind_ns: Ints
    """How much later than the middle one of the ranks (of two middle ones the earlier) it came; 0 if it did not."""
    latest_ns: Ints
    last: Ints
    """Row of the rank that came last (of several the first), one for each collective."""
    sound: Bools
    """False where a transfer is negative or fewer than two ranks took part."""


def waits(start_ns: Ints, end_ns: Ints) -> Waits:
    """Of starts and ends, ranks by collectives, `ABSENT` where a rank did not take part; one rank at least."""
    present = start_ns != ABSENT
    many = present.sum(axis=0)
    latest = start_ns.max(axis=0)
    transfer = np.where(present, end_ns - latest, 0)
    absent = len(start_ns) - many  # which come first in order
    middle = np.take_along_axis(np.sort(start_ns, axis=0), (absent + np.maximum(many - 1, 0) // 2)[None, :], axis=0)[0]
    return Waits(
        present,
        wait_ns=np.where(present, latest - start_ns, 0),
        transfer_ns=transfer,
        behind_ns=np.where(present & (start_ns > middle), start_ns - middle, 0),
        latest_ns=latest,
        last=np.argmax(start_ns, axis=0).astype(np.int64),
        sound=(many >= 2) & ~(transfer < 0).any(axis=0),
    )
