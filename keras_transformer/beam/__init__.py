"""Work on more text than one process should hold, with Apache Beam: on its runners, from and to its file systems."""
