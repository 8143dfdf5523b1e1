"""Where labels go: beside what they name, over no other label and over no dot that matters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: Box) -> bool:
        """Whether they share more than an edge."""
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def inside(self, other: Box) -> bool:
        """Whether it lies in the other one."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.bottom <= self.bottom
            and self.top <= other.top
        )


@dataclass(frozen=True, slots=True)
class Anchor:
    """What a label names: dots that lie together, around a middle, and the size of the label; in pixels."""

    x: float
    y: float
    radius: float
    width: float
    height: float
    dots: frozenset[Box] = frozenset()
    """The dots themselves, which a label may touch."""


def place(anchors: Sequence[Anchor], room: Box, *, taken: Sequence[Box] = ()) -> list[Box | None]:
    """A place for each label, in order of importance; None where there is no free one near.

    Labels keep clear of each other and of what is `taken`, and stay in the `room`.
    """
    placed: list[Box | None] = []
    blocked = list(taken)
    for anchor in anchors:
        others = [box for box in blocked if box not in anchor.dots]
        near = (box for box in _around(anchor) if box.inside(room))
        free = next((box for box in near if not any(box.overlaps(other) for other in others)), None)
        placed.append(free)
        if free:
            blocked.append(free)
    return placed


#: Where a label may stand, as seen from its dot: steps of its reach across and up, of the label's own height up, and of
#: half its width across.
_PLACES = (
    (1, 0, 0, 1), (-1, 0, 0, -1), (0, 1, 0.5, 0), (0, -1, -0.5, 0), (1, 0, 0.6, 1), (1, 0, -0.6, 1), (-1, 0, 0.6, -1),
    (-1, 0, -0.6, -1), (0.7, 0.7, 0.5, 1), (0.7, -0.7, -0.5, 1), (-0.7, 0.7, 0.5, -1), (-0.7, -0.7, -0.5, -1),
    (1, 1, 0.5, -1), (1, -1, -0.5, -1), (-1, 1, 0.5, 1), (-1, -1, -0.5, 1),
)  # fmt: skip


def _around(anchor: Anchor) -> Iterator[Box]:
    """Places beside a dot, so near that no line is needed: right, left, above, below, then in between.

    The last are above and below with one end over the dot's edge, for dots at the edge of the room.
    """
    for distance in (3, 8, 14):
        reach = anchor.radius + distance
        for across, up, raised, shifted in _PLACES:
            x = anchor.x + across * reach + shifted * anchor.width / 2
            y = anchor.y + up * reach + raised * anchor.height
            yield Box(x - anchor.width / 2, y - anchor.height / 2, x + anchor.width / 2, y + anchor.height / 2)
