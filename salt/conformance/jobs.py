"""
The job itself: its id, its load, its minions. The numbers are those of cases.md (S) and contract.md (R).
"""

import concurrent.futures
import copy
import datetime
import inspect

from .harness import check
from .harness import holds
from .harness import same


def published(jid, **changes):
    """The load of a publish, as the master's worker has it."""
    load = {
        "cmd": "publish",
        "tgt": "web*",
        "tgt_type": "glob",
        "jid": jid,
        "fun": "test.arg",
        "arg": ["x", {"__kwarg__": True, "refresh": True}],
        "user": "sudo_alice",
        "ret": "",
        "kwargs": {"delimiter": ":", "show_timeout": True, "show_jid": False},
    }
    load.update(changes)
    return load


def returned(jid, minion="alpha", **changes):
    """The return of a minion, as store_job has it."""
    ret = {
        "cmd": "_return",
        "id": minion,
        "jid": jid,
        "fun": "test.arg",
        "fun_args": ["x"],
        "return": True,
        "retcode": 0,
        "success": True,
        "_stamp": "2026-08-01T14:27:38.900000",
    }
    ret.update(changes)
    return ret


def send(r, jid, minion="alpha", **changes):
    """The calls that a master makes for a return (salt.utils.job.store_job), local_cache's own way apart."""
    ret = returned(jid, minion, **changes)
    r.prep_jid(False, passed_jid=jid)
    if r.name != "local_cache" or not r.get_load(jid):
        r.save_load(jid, dict(ret))
    return r.returner(ret)


@check("prep_jid", "a jid in Salt's form, of now")
def _(r, _jid):
    jid = r.prep_jid(nocache=False, passed_jid=None)
    holds(isinstance(jid, str) and len(jid) >= 20 and jid[:20].isdigit(), f"gave {jid!r}")
    age = datetime.datetime.utcnow() - datetime.datetime.strptime(jid[:20], "%Y%m%d%H%M%S%f")
    holds(abs(age) < datetime.timedelta(seconds=60), f"its time is {age} from now")


@check("prep_jid", "a passed jid comes back, called as salt-ssh does: passed_jid alone")
def _(r, jid):
    same(r.prep_jid(passed_jid=jid), jid)


@check("prep_jid", "a passed jid comes back, called as store_job does: positional nocache")
def _(r, jid):
    same(r.prep_jid(False, passed_jid=jid), jid)


@check("prep_jid", "2,000 jids of 8 threads are all different (R6)")
def _(r, _jid):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jids = list(pool.map(lambda _: r.prep_jid(nocache=False), range(2000)))
    holds(len(set(jids)) == 2000, f"{2000 - len(set(jids))} of 2000 twice")


@check("prep_jid", "nocache=True: the job's returns are not kept")
def _(r, _jid):
    jid = r.prep_jid(nocache=True)
    r.save_load(jid, published(jid), ["alpha"])
    r.returner(returned(jid))
    same(r.get_jid(jid), {})


@check("save_load", "get_load gives every field back with its type, kwargs in arg too (S01)")
def _(r, jid):
    load = published(jid)
    r.save_load(jid, copy.deepcopy(load), ["alpha"])
    got = r.get_load(jid)
    got.pop("Minions", None)
    same(got, load)


@check("save_load", "has a parameter named minions, which the master looks for")
def _(r, _jid):
    holds("minions" in inspect.signature(r.save_load).parameters, "has none")


@check("save_load", "does not change its argument, which the master publishes afterwards (R10)")
def _(r, jid):
    load = published(jid)
    r.save_load(jid, load, ["alpha"])
    same(load, published(jid))


@check("save_load", "the return that Salt saves as a load leaves target, arguments and user (S01)")
def _(r, jid):
    r.save_load(jid, published(jid), ["alpha"])
    send(r, jid)
    got = r.get_load(jid)
    same([got.get(k) for k in ("tgt", "fun", "user")], ["web*", "test.arg", "sudo_alice"])


@check("save_load", "a publish that comes after a return is the load all the same (R2)")
def _(r, jid):
    r.save_load(jid, returned(jid))
    r.returner(returned(jid))
    r.save_load(jid, published(jid), ["alpha"])
    same(r.get_load(jid).get("tgt"), "web*")


@check("save_load", "minions of the chunks of one batch job are united (P18)")
def _(r, jid):
    for minions in (["alpha", "beta"], ["gamma"], ["delta"]):
        r.save_load(jid, published(jid, tgt=minions, tgt_type="list"), minions)
    same(r.get_load(jid).get("Minions"), ["alpha", "beta", "delta", "gamma"])


@check("save_load", "minions by keyword, as for ext_job_cache")
def _(r, jid):
    r.save_load(jid, published(jid), minions=["alpha"])
    same(r.get_load(jid).get("Minions"), ["alpha"])


@check("save_load", "odd targets: None, a list, a list as the type (P13, P14)")
def _(r, jid):
    for n, (tgt, kind) in enumerate([(None, "glob"), (["a", "b"], "list"), ("*", []), ("*", ["idontknow"])]):
        own = f"{jid}_{n}"
        r.save_load(own, published(own, tgt=tgt, tgt_type=kind), ["alpha"])
        got = r.get_load(own)
        same([got.get("tgt"), got.get("tgt_type")], [tgt, kind])


@check("save_load", "secrets of eauth are not kept: root key, password, token (R10)")
def _(r, jid):
    kwargs = {
        "username": "u",
        "password": "s3cret-pass",
        "token": "s3cret-token",
        "metadata": {"a": 1},
    }
    r.save_load(jid, published(jid, key="s3cret-key", kwargs=kwargs), ["alpha"])
    got = r.get_load(jid)
    holds("s3cret" not in repr(got), "they are in what get_load gives")
    same(got.get("kwargs", {}).get("metadata"), {"a": 1}, "metadata")


@check("save_minions", "unites, with a syndic's name and any iterable")
def _(r, jid):
    r.save_load(jid, published(jid), ["alpha"])
    r.save_minions(jid, ["beta"], syndic_id="syndic1")
    r.save_minions(jid, {"gamma": 1}.keys(), syndic_id="syndic2")
    same(r.get_load(jid).get("Minions"), ["alpha", "beta", "gamma"])


@check("get_load", "{} for a job that nobody knows")
def _(r, jid):
    same(r.get_load(jid), {})


@check("get_load", "a dictionary of the caller's own, with Minions in order")
def _(r, jid):
    r.save_load(jid, published(jid), ["web2", "alpha", "web10"])
    got = r.get_load(jid)
    same(got.get("Minions"), ["alpha", "web10", "web2"])
    got.clear()
    holds(r.get_load(jid), "what a caller did to its answer is in the next one")


@check("get_load", "raises when the store cannot be asked, and does not say {} (R4)", down=True)
def _(r, jid):
    try:
        got = r.get_load(jid)
    except Exception:  # any will do: the CLI then goes by the events
        return
    holds(False, f"answered {got!r}")


@check("prep_jid", "a passed jid comes back while the store cannot be asked (S03)", down=True)
def _(r, jid):
    same(r.prep_jid(False, passed_jid=jid), jid)


@check("prep_jid", "a new jid while the store cannot be asked: the master publishes (S03)", down=True)
def _(r, _jid):
    jid = r.prep_jid(nocache=False)
    holds(isinstance(jid, str) and jid[:20].isdigit(), f"gave {jid!r}")


@check("save_load", "does not raise while the store cannot be asked (S03)", down=True)
def _(r, jid):
    r.save_load(jid, published(jid), ["alpha"])
