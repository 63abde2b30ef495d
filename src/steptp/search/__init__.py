"""Search over programs: a tree of verified states, budgets, algorithms. Policies are passed in."""
