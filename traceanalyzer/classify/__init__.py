"""What a kernel is called for short, and what class of work it does."""

from __future__ import annotations
