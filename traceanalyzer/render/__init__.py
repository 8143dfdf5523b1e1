"""Drawing a `Report`: terminal, Markdown, JSON, CSV, Parquet. Nothing here computes a figure."""
