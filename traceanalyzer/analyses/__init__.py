"""Analyses: one question each, frames in and frames out. Nothing here prints or reads a file."""
