"""Translation rules, one module for each family of operators (see :mod:`steptp.frontend.registry`)."""
