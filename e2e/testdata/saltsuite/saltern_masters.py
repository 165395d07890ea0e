"""
A pytest plugin for Salt's own tests: the masters that they start keep their jobs in Saltern.

The tests stay as they are. SALTERN_MASTER is what is added to the configuration of each master, as JSON.
"""

import functools
import json
import os

from saltfactories.manager import FactoriesManager

unchanged = FactoriesManager.salt_master_daemon


@functools.wraps(unchanged)
def with_saltern(self, master_id, *args, **kwargs):
    overrides = dict(kwargs.pop("overrides", None) or {})
    added = json.loads(os.environ["SALTERN_MASTER"])
    # The suite may have folders of its own for returners.
    given = {**(kwargs.get("defaults") or {}), **overrides}
    added["returner_dirs"] = list(given.get("returner_dirs") or []) + added["returner_dirs"]
    overrides.update(added)
    return unchanged(self, master_id, *args, overrides=overrides, **kwargs)


FactoriesManager.salt_master_daemon = with_saltern
