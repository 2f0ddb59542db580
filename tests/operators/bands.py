"""What the tests of operators ask of a band."""


def wsum(band):
    """The sum of its weights."""
    return sum(float(part.weight.sum()) for part in band)
