"""Shows what the scores of one or two systems are made of: a report, and COMET."""
