"""
The tables that returners of Salt need, from their docstrings.
"""

import importlib
import re
import textwrap


def tables(name, opts):
    """Makes the tables of a returner whose docstring has them; nothing for others."""
    if name == "cassandra_cql":
        _cassandra(opts["cassandra"], _block("salt.returners.cassandra_cql_return", "database schema"))
    elif name == "pgjsonb":
        _postgres(opts, _block("salt.returners.pgjsonb", "database schema"))


def _block(module, after):
    """The indented block of code of a module's docstring that follows some words."""
    text = importlib.import_module(module).__doc__
    text = text[text.index(after) :]
    block = re.search(r"\.\. code-block:: \w+\n\n((?: {4,}.*\n|\n)+)", text)[1]
    return textwrap.dedent(block)


def _cassandra(place, script):
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import Cluster

    auth = PlainTextAuthProvider(place["username"], place["password"])
    cluster = Cluster(place["cluster"], port=place["port"], auth_provider=auth, protocol_version=4)
    session = cluster.connect()
    for statement in script.split(";"):
        # Users and their rights: the node of the testbed lets everyone do everything.
        if statement.strip() and not re.match(r"\s*(CREATE USER|GRANT|USE)", statement):
            session.execute(re.sub(r"CREATE INDEX (?!IF)", "CREATE INDEX IF NOT EXISTS ", statement))
    cluster.shutdown()


def _postgres(opts, script):
    import psycopg2

    place = {k.rpartition(".")[2]: v for k, v in opts.items() if k.startswith("returner.pgjsonb.")}
    where = {
        "host": place["host"],
        "port": place["port"],
        "user": place["user"],
        "password": place["pass"],
    }
    create, _, rest = script.partition(";")
    with _committing(psycopg2.connect(dbname="postgres", **where)) as cursor:
        cursor.execute(create)
    with _committing(psycopg2.connect(dbname=place["db"], **where)) as cursor:
        cursor.execute(rest)


class _committing:
    def __init__(self, connection):
        self.connection = connection
        self.connection.autocommit = True

    def __enter__(self):
        return self.connection.cursor()

    def __exit__(self, *args):
        self.connection.close()
