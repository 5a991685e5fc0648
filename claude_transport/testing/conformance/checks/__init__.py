"""The clauses: one function for each, in modules named after what they are about."""
