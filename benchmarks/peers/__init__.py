"""Other toolkits, trained on the same text: python -m benchmarks.peers."""
