"""Reading: files -> bytes (`source`) -> JSON structure (`document`) -> raw columns (`engine`) -> public tables."""
