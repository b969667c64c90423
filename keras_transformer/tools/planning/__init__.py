"""What a training will need, before it starts: its memory, and with `train.py --dry_run` its corpus and its time."""
