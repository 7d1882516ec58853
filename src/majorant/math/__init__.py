"""Numerics that several parts share."""
