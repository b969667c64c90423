"""Model cards: what a person, and a hub of models, reads of an export first."""
