"""Numbers in words, for people."""


def counted(number, noun, plural=None):
    """A number with its noun: "1 pair", "1,200 pairs".

    Args:
        number: int.
        noun: str, of one.
        plural: str, of several; the noun with an "s" by default.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def duration(seconds):
    """Seconds in the two largest units that matter, such as "3 h 20 min"."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
