"""A sweep: runs that differ in a few settings, trained one after the other and compared on the validation set."""
