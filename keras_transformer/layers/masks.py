"""Who may attend to whom (section 3.2.3). Masks are boolean and explicit: True = may attend."""

from keras import ops

PAD_ID = 0


def padding_mask(ids):
    """Hides padding from every query.

    Args:
        ids: int (B, S), 0 where padded.

    Returns:
        bool (B, 1, 1, S), broadcastable to scores of (B, H, T, S).
    """
    return ops.not_equal(ids, PAD_ID)[:, None, None, :]


def causal_mask(length):
    """Hides the future: position t sees positions 0 ... t.

    Args:
        length: T, an int or an int scalar tensor.

    Returns:
        bool (1, 1, T, T).
    """
    positions = ops.arange(length)
    return ops.greater_equal(positions[:, None], positions[None, :])[None, None]
