"""The zoo: our own workload definitions, from matrix products to transformer blocks (see :mod:`steptp.frontend.zoo.index`)."""
