"""
The payloads P1 to P18 of the cases, and what they are made of.
"""

import datetime
import itertools

_numbers = itertools.count()


def new_jid():
    """
    A jid in Salt's form, of now: old ones would be expired at once.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    later = now + datetime.timedelta(microseconds=next(_numbers))
    return later.strftime("%Y%m%d%H%M%S%f")


def p1(jid, **more):
    load = {
        "cmd": "publish",
        "tgt": "*",
        "tgt_type": "glob",
        "jid": jid,
        "fun": "test.ping",
        "arg": [],
        "user": "sudo_alice",
        "ret": "",
        "kwargs": {"delimiter": ":", "show_timeout": True, "show_jid": False},
    }
    return {**load, **more}


def p2(jid, minion="alpha", result=True, **more):
    ret = {
        "cmd": "_return",
        "id": minion,
        "jid": jid,
        "fun": "test.ping",
        "fun_args": [],
        "return": result,
        "retcode": 0,
        "success": True,
        "_stamp": "2024-08-01T14:27:38.900000",
    }
    return {**ret, **more}


P3_SIG = bytes((0x8B + 7 * i) % 256 for i in range(256))
P4_DER = bytes.fromhex("3082010a0282010100")
P5_GIF = bytes.fromhex("474946383961010001008000000504040000002c00000000010001000002024401003b")
P6 = ["i3", {"__kwarg__": True, "refresh": "true", "sysupgrade": "false"}]
P7 = [{"multi": True, "__kwarg__": True}, {"multi": False, "__kwarg__": True}]
P8 = [{"u'CN'": "u'ca one'", "testrun": True, "u'public_key_passphrase'": "u'None'"}]
P9 = {
    "file_|-/etc/motd_|-/etc/motd_|-managed": {
        "__id__": "/etc/motd",
        "__run_num__": 0,
        "changes": {"a.b$c": 1},
        "comment": "it's 'ok'",
        "duration": 15.189,
        "name": "/etc/motd",
        "result": True,
        "start_time": "10:14:02.295386",
    }
}


def p10(jid):
    inner = {
        "fun": "runner.test.arg",
        "jid": jid,
        "user": "sudo_alice",
        "fun_args": ["go", "home"],
        "_stamp": "2024-08-01T14:27:38.900000",
        "return": {"args": ["go", "home"], "kwargs": {}},
        "success": True,
    }
    return {"id": "m_master", "tgt": "m_master", "jid": jid, "return": inner}


def p11(jid, depth=12, steps=500):
    deep = {"alpha": {"result": True}}
    for level in range(depth):
        deep = {f"level{level}": deep}
    data = {
        f"salt_|-step{step}_|-step{step}_|-state": {
            "__jid__": f"2024080114273889{step:04d}",
            "result": True,
            "changes": {"out": "highstate", "ret": deep},
        }
        for step in range(steps)
    }
    ret = p10(jid)
    ret["return"]["fun"] = "runner.state.orch"
    ret["return"]["fun_args"] = [{"mods": "orch.one", "pillar": {"k": "v"}}]
    ret["return"]["return"] = {
        "data": {"m_master": data},
        "outputter": "highstate",
        "retcode": 0,
    }
    return ret


def p16(jid):
    text = "rm: cannot remove '/nowhere': No such file or directory"
    ret = {"fun": "cmd.run", "fun_args": None, "return": text, "retcode": 1, "success": True}
    return {**ret, "id": "alpha", "jid": jid, "master_id": "m_master"}


def p17(jid):
    ret = {"fun": "state.single", "fun_args": ["status.loadavg", "1-min"], "pid": 7429}
    ret |= {"schedule": "test01", "success": True, "return": ["The function is running as PID 1"]}
    return {**ret, "id": "alpha", "jid": jid}


def store_return(returner, ret):
    """
    What store_job of Salt 3006 to 3008 calls for a return of a minion or a runner (table R2).
    """
    jid = ret["jid"]
    if jid == "nocache":
        return None
    if jid == "req":
        ret["tgt"], ret["tgt_type"], ret["arg"] = ret["id"], "glob", ret.get("fun_args", [])
        ret["jid"] = returner.prep_jid(nocache=ret.get("nocache", False))
        returner.save_load(ret["jid"], ret)
    elif isinstance(jid, str) and jid[:20].isdigit():
        returner.prep_jid(False, passed_jid=jid)
    if "fun" not in ret and isinstance(ret.get("return"), dict):
        ret["fun"], ret["user"] = ret["return"].get("fun"), ret["return"].get("user")
    returner.save_load(ret["jid"], ret)
    return returner.returner(ret)
