"""Whose fault it is that a call failed: an exception for each kind of wit/operator.wit."""


class BadRecord(Exception):
    """The record can't be processed. So is every other exception that `process` lets pass."""


class Transient(Exception):
    """The same may work when tried again from the last checkpoint."""


class Fatal(Exception):
    """It won't work, however often it is tried."""
