"""
What minions return: kept as it came, once, whatever it is.
"""

import concurrent.futures
import datetime

import salt.utils.job

from .harness import check
from .harness import holds
from .harness import same
from .harness import shown
from .jobs import published
from .jobs import returned
from .jobs import send

#: What is returned, and what comes back where it is another value: the table R1 of cases.md, which is what local_cache
#: gives. An exception is not in it: local_cache raises.
VALUES = [
    ("dictionary with ints as keys", {1: "a", 2: {3: "b"}}, None),
    ("tuple", (1, 2), [1, 2]),
    ("bytes that are no text (S02)", {"k": b"\x82\x01\xff"}, None),
    ("bytes as a key", {b"\x82": "v"}, None),
    ("datetime", {"t": datetime.datetime(2024, 1, 2, 3, 4, 5, 678)}, None),
    ("set", {"s": {"a"}}, {"s": ["a"]}),
    ("None, True, 1.5 as keys", {None: "v", True: "w", 1.5: "x"}, None),
    ("nan and inf", {"n": float("nan"), "i": float("inf")}, None),
    ("ints of 63 and 64 bits", [2**63 - 1, 2**64 - 1, -(2**63)], None),
    ("int beyond 64 bits", 2**70, "1180591620717411303424"),
    ("NUL in a text", {"s": "a\x00b"}, None),
    ("apostrophes", {"s": "it's 'ok'"}, None),
    ("text of other scripts", {"日本": "grüße 🧂"}, None),
    ("None", None, None),
    ("False", False, None),
    ("empty text, dictionary, list", ["", {}, []], None),
    ("float that is whole", 1.0, None),
]


def _value_check(title, value, want):
    want = value if want is None else want

    @check("returner", f"value: {title}")
    def _(r, jid):
        r.save_load(jid, published(jid), ["alpha"])
        send(r, jid, **{"return": value})
        got = r.get_jid(jid)
        holds("alpha" in got, "the return is lost")
        same(got["alpha"].get("return"), want, "comes back as")


for _title, _value, _want in VALUES:
    _value_check(_title, _value, _want)


@check("returner", "value: order of keys")
def _(r, jid):
    r.save_load(jid, published(jid), ["alpha"])
    send(r, jid, **{"return": {"b": 1, "a": 2}})
    same(list(r.get_jid(jid)["alpha"]["return"]), ["b", "a"])


@check("returner", "value: 400 levels deep")
def _(r, jid):
    value = "bottom"
    for _ in range(400):
        value = [value]
    r.save_load(jid, published(jid), ["alpha"])
    send(r, jid, **{"return": value})
    got, levels = r.get_jid(jid)["alpha"]["return"], 0
    while isinstance(got, list):
        got, levels = got[0], levels + 1
    same([got, levels], ["bottom", 400])


@check("returner", "None for what it stored, and False for a repeat")
def _(r, jid):
    r.save_load(jid, published(jid), ["alpha"])
    same([r.returner(returned(jid)), r.returner(returned(jid))], [None, False])


@check("returner", "the first return of a minion stays (R7)")
def _(r, jid):
    r.save_load(jid, published(jid), ["alpha"])
    send(r, jid, **{"return": "first"})
    send(r, jid, **{"return": "second"})
    same(r.get_jid(jid)["alpha"]["return"], "first")


@check("returner", "salt-ssh's: jid, id, return and fun alone")
def _(r, jid):
    r.save_load(
        jid,
        {
            "jid": jid,
            "tgt_type": "glob",
            "tgt": "web1",
            "user": "root",
            "fun": "test.ping",
            "arg": [],
        },
    )
    r.returner({"jid": jid, "id": "web1", "return": True, "fun": "test.ping"})
    same(r.get_jid(jid)["web1"]["return"], True)


@check("returner", "a return of a job that nobody published")
def _(r, jid):
    r.returner(returned(jid))
    same(r.get_jid(jid)["alpha"]["return"], True)


@check("returner", "a job of several functions: fun is a list")
def _(r, jid):
    r.save_load(jid, published(jid, fun=["test.ping", "test.echo"], arg=[[], ["x"]]), ["alpha"])
    value = {"test.ping": True, "test.echo": "x"}
    fine = {"test.ping": 0, "test.echo": 0}
    send(
        r,
        jid,
        fun=["test.ping", "test.echo"],
        retcode=fine,
        success={k: True for k in fine},
        **{"return": value},
    )
    same(r.get_jid(jid)["alpha"]["return"], value)


@check("returner", "odd ids of minions (R3)")
def _(r, jid):
    ids = ["foo.bar*", "test minion", "a:b", "日本", "10.0.0.1"]
    r.save_load(jid, published(jid), ids)
    for minion in ids:
        send(r, jid, minion)
    same(sorted(r.get_jid(jid)), sorted(ids))


@check("returner", "400 returns of 8 threads are all there")
def _(r, jid):
    ids = [f"m{n}" for n in range(400)]
    r.save_load(jid, published(jid), ids)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda minion: r.returner(returned(jid, minion)), ids))
    lost = set(ids) - set(r.get_jid(jid))
    holds(not lost, f"{len(lost)} of 400 are lost")


@check("returner", "does not raise while the store cannot be asked", down=True)
def _(r, jid):
    r.returner(returned(jid))


@check("get_jid", "{} for a job that nobody knows")
def _(r, jid):
    same(r.get_jid(jid), {})


@check("get_jid", "return, retcode and success of each minion, and the outputter")
def _(r, jid):
    r.save_load(jid, published(jid), ["alpha", "beta"])
    send(r, jid, "alpha", out="highstate")
    send(r, jid, "beta", success=False, retcode=2, **{"return": "no"})
    got = r.get_jid(jid)
    want = {"alpha": [True, 0, True, "highstate"], "beta": ["no", 2, False, None]}
    same(
        {m: [got[m].get(k) for k in ("return", "retcode", "success", "out")] for m in sorted(got)},
        want,
    )


@check("get_jid", "raises when the store cannot be asked, and does not say {}", down=True)
def _(r, jid):
    try:
        got = r.get_jid(jid)
    except Exception:  # any will do
        return
    holds(False, f"answered {got!r}")


class _Minion:
    """As much of a MasterMinion as store_job takes."""

    def __init__(self, r):
        self.returners = r.loader
        self.opts = r.opts


def _store_job(r, ret):
    opts = {**r.opts, "master_job_cache": r.name}
    salt.utils.job.store_job(opts, ret, mminion=_Minion(r))
    return ret["jid"]


@check("store_job", "salt-call's job (jid req) is kept with its function, arguments and return")
def _(r, _jid):
    ret = returned("req", fun_args=["go"])
    del ret["success"]
    jid = _store_job(r, ret)
    load = r.get_load(jid)
    same([load.get("fun"), load.get("tgt"), load.get("arg")], ["test.arg", "alpha", ["go"]], "load")
    same(r.get_jid(jid)["alpha"]["return"], True)


@check("store_job", "a runner's job, a Python object as it is (P10)")
def _(r, jid):
    inner = {
        "fun": "runner.test.arg",
        "jid": jid,
        "user": "root",
        "fun_args": ["go"],
        "success": True,
    }
    inner["return"] = {"args": ("go", "home"), "kwargs": {}}
    _store_job(r, {"id": "m_master", "tgt": "m_master", "jid": jid, "return": inner})
    got = r.get_jid(jid)
    holds("m_master" in got, "the return is lost")
    same(got["m_master"]["return"]["return"]["args"], ["go", "home"], shown("args"))


@check("store_job", "a job with a free-form id (R2)")
def _(r, jid):
    free = "5b3d40f2" + jid
    _store_job(r, returned(free))
    same(r.get_jid(free)["alpha"]["return"], True)
