"""Mutation testing of the verifier: seeded wrong programs, evidence that they are wrong which does not come from it, and its verdicts on them."""
