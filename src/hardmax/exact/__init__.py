"""Numbers that can be trusted: rationals, sign predicates, small linear programs with certificates."""
