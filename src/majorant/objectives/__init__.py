"""Personalized objectives, and the constants that set their solvers' steps."""
