"""The recipe: from a corpus to a translator that ships, stage by stage. It knows programs, not their insides."""
