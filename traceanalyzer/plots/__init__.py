"""Pictures of what analyses found: frames in, PNG or SVG out as bytes. Nothing here reads traces or writes files."""

from __future__ import annotations
