"""
The returners that are put through the checks: with which Salt, which stores, which options.

A store is where its clients find it. "down" is where nothing answers: a port that nobody listens on.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Kind:
    """How one returner is set up."""

    name: str
    #: The environment of testbed/pyenv: a Salt that has the returner, and its driver.
    env: str
    #: The store that it needs: its name in services.py, or None.
    store: str | None
    #: The options for a store at an address.
    opts: object
    note: str = ""


def _redis(at):
    return {"redis.host": at.host, "redis.port": at.port, "redis.db": "0"}


def _cassandra(at):
    return {
        "cassandra": {
            "cluster": [at.host],
            "port": at.port,
            "username": "cassandra",
            "password": "cassandra",
            "protocol_version": 4,
        }
    }


def _pgjsonb(at):
    place = {
        "host": at.host,
        "port": at.port,
        "user": "salt",
        "pass": "salt",
        "db": "salt",
        "connect_timeout": 3,
    }
    return {f"returner.pgjsonb.{k}": v for k, v in place.items()}


def _saltern(at):
    return {
        "returner_dirs": [at.returners],
        "saltern": {"address": f"unix:{at.socket}", "spool_dir": f"{at.folder}/spool"},
    }


KINDS = [
    Kind("local_cache", "salt-3008.4", None, lambda _: {}, "3008.4, Salt's default"),
    Kind("salt_cache", "salt-3008.4", None, lambda _: {}, "3008.4, over localfs"),
    Kind("redis", "peers-3006.29", "redis", _redis, "3006.29, Redis 7"),
    Kind("cassandra_cql", "peers-3006.29", "cassandra", _cassandra, "3006.29, Cassandra 5"),
    Kind("pgjsonb", "peers-3008.4", "postgres", _pgjsonb, "3008.4, PostgreSQL 15"),
    Kind("saltern", "salt-3008.4", "saltern", _saltern, "3008.4"),
    Kind("saltern 3006", "salt-3006.29", "saltern", _saltern, "3006.29"),
]
