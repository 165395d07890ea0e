"""Functions that return what JSON cannot hold, or takes long."""

import time


def values():
    """Bytes, keys that are no strings, large numbers, quotes."""
    return {
        "der": bytes.fromhex("3082010a0282010100"),
        "list": [b"\x82\x01\xff", "it's 'ok'"],
        1: {2: "int keys"},
        "big": 2**63 + 1,
        "nul": "a\x00b",
        "order": {"b": 1, "a": 2},
    }


def slow(seconds):
    """True, after that many seconds."""
    time.sleep(seconds)
    return True


def deep(levels):
    """A map in a map in a map."""
    value = "bottom"
    for level in range(levels):
        value = {f"level {level}": [value]}
    return value
