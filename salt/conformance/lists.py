"""
What is asked across jobs, and what is told beside them.
"""

import time

from .harness import check
from .harness import holds
from .harness import same
from .harness import until
from .jobs import published
from .jobs import returned
from .jobs import send


@check("get_jids", "a dictionary of jobs as jobs.list_jobs shows them")
def _(r, jid):
    r.save_load(jid, published(jid), ["alpha"])
    send(r, jid)
    jobs = r.get_jids()
    holds(isinstance(jobs, dict), f"gave a {type(jobs).__name__}")
    holds(jid in jobs, "the job is not in it")
    got = {k: jobs[jid].get(k) for k in ("Function", "Target", "Target-type", "User")}
    same(got, {"Function": "test.arg", "Target": "web*", "Target-type": "glob", "User": "sudo_alice"})


@check("get_jids", "raises when the store cannot be asked, and does not say {}", down=True)
def _(r, _jid):
    try:
        got = r.get_jids()
    except Exception:  # any will do
        return
    holds(False, f"answered {got!r}")


@check("get_jids_filter", "as many as were asked for, in rising order")
def _(r, jid):
    own = [f"{jid}_{n}" for n in range(3)]
    for j in own:
        r.save_load(j, published(j), ["alpha"])
    same(len(r.get_jids_filter(2, True)), 2, "how many of 2")
    same([j["JID"] for j in r.get_jids_filter(500, True) if j["JID"] in own], own)


@check("get_jids_filter", "without find_job, and with it when asked")
def _(r, jid):
    found = f"{jid}_9"
    r.save_load(jid, published(jid), ["alpha"])
    r.save_load(found, published(found, fun="saltutil.find_job"), ["alpha"])
    for hidden, want in ((True, [jid]), (False, [jid, found])):
        same(
            [j["JID"] for j in r.get_jids_filter(500, hidden) if j["JID"] in (jid, found)],
            want,
            f"hidden {hidden}",
        )


@check("update_endtime", "get_endtime gives the last one back as it came")
def _(r, jid):
    r.save_load(jid, published(jid), ["alpha"])
    for second in ("08", "09"):
        r.update_endtime(jid, f"2026, Dec 01 03:09:{second}.888491")
    same(r.get_endtime(jid), "2026, Dec 01 03:09:09.888491")


@check("update_endtime", "does not raise while the store cannot be asked", down=True)
def _(r, jid):
    r.update_endtime(jid, "2026, Dec 01 03:09:07.888491")


@check("get_endtime", "nothing for a job without one")
def _(r, jid):
    holds(not r.get_endtime(jid), "gave something")


@check("clean_old_jobs", "what has passed keep_jobs_seconds goes")
def _(r, jid):
    short = r.but(keep_jobs_seconds=1)
    short.save_load(jid, published(jid), ["alpha"])
    short.returner(returned(jid))
    time.sleep(2)  # the time that is kept is what is tested, and Salt's returners go by the clock of the system

    def gone():
        short.clean_old_jobs()
        return not short.get_load(jid) and not short.get_jid(jid)

    holds(until(gone), "it is still there after 20 s")


@check("clean_old_jobs", "keep_jobs_seconds: 0 keeps for ever")
def _(r, jid):
    keeping = r.but(keep_jobs_seconds=0)
    keeping.save_load(jid, published(jid), ["alpha"])
    keeping.returner(returned(jid))
    keeping.clean_old_jobs()
    holds(keeping.get_load(jid), "the load is gone")
    holds(keeping.get_jid(jid), "the returns are gone")


@check(
    "clean_old_jobs",
    "does not raise while the store cannot be asked: that ends Maintenance (R5)",
    down=True,
)
def _(r, _jid):
    r.clean_old_jobs()


@check("event_return", "takes events, bytes in them too, and an empty list")
def _(r, jid):
    r.event_return([{"tag": f"salt/job/{jid}/new", "data": {"_stamp": "2026-12-01T03:09:07.9", "b": b"\xff"}}])
    r.event_return([])


@check(
    "event_return",
    "does not raise while the store cannot be asked: Salt drops the batch then (R14)",
    down=True,
)
def _(r, jid):
    r.event_return([{"tag": f"salt/job/{jid}/new", "data": {"_stamp": "2026-12-01T03:09:07.9"}}])


@check("get_fun", "the minions whose last function it was")
def _(r, jid):
    fun = f"test.fun_{jid}"
    r.save_load(jid, published(jid, fun=fun), ["gf1"])
    send(r, jid, f"gf-{jid}", fun=fun)
    got = r.get_fun(fun)
    same(sorted(got), [f"gf-{jid}"])


@check("get_minions", "every minion that has returned")
def _(r, jid):
    send(r, jid, f"gm-{jid}")
    got = r.get_minions()
    holds(isinstance(got, list), f"gave a {type(got).__name__}")
    holds(f"gm-{jid}" in got, "it is not in it")


@check("save_reg", "load_reg gives a register of Thorium back")
def _(r, jid):
    register = {"status": {"val": {"alpha": 1}, "jid": jid}}
    r.save_reg(register)
    same(r.load_reg(), register)


# The last one, as it may break every list after it.
@check("get_jids", "a jid of 20 digits that is no date does not break it (R12)")
def _(r, jid):
    odd = "99999999999999" + jid[-6:]
    r.save_load(odd, published(odd), ["alpha"])
    r.save_load(jid, published(jid), ["alpha"])
    holds(jid in r.get_jids(), "the job beside it is not in it")
