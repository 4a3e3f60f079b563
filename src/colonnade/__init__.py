"""Colonnade: vertical federated learning under homomorphic encryption and secret sharing."""

__version__ = "0.1.0"

__all__ = ["__version__"]
