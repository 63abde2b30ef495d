"""Step-TP: verified, measured single steps of tensor-program optimisation."""

__version__ = "0.1.0"
