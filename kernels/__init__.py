"""Replacement kernels."""
