"""
The Salt extension around the Saltern returner.

Salt finds the returner through the entry point ``salt.loader``, which names this package; the
returner itself, ``returners/saltern.py``, needs nothing of it.
"""

__version__ = "0.1.0"
