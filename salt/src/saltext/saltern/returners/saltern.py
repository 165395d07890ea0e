"""
Keep the jobs and events of Salt in Saltern.

.. code-block:: yaml

    # the master's configuration
    master_job_cache: saltern
    event_return: [saltern]

Saltern (``saltern serve``) is a daemon beside the master; with no setting it is found at
``/run/saltern/saltern.sock``. This file is complete in itself: it works in a ``_returners`` folder,
in a folder that ``returner_dirs`` names, and as the package ``saltext.saltern``.

**Options.** All are optional. They are read from the configuration of the master or minion, then
from its pillar; nested (``saltern: {address: ...}``) before flat (``saltern.address: ...``).

.. code-block:: yaml

    saltern:
      # unix:PATH or tcp:HOST:PORT
      address: unix:/run/saltern/saltern.sock
      # Shown to Saltern where it asks for one.
      token: ''
      # Where set, a Saltern of another namespace is not used.
      namespace: ''
      # Seconds: to connect, to wait while nothing comes, and the same while a list is made.
      connect_timeout: 0.2
      timeout: 1
      list_timeout: 30
      # What cannot be stored now waits in SPOOL_DIR/master or SPOOL_DIR/minion, up to this size in
      # bytes. Never put it into Salt's cachedir: saltutil.clear_cache empties that.
      spool_dir: /var/spool/saltern
      spool_max: 1073741824

``keep_jobs_seconds`` says how long Saltern keeps a job; 0 keeps it for ever.

**On minions.** ``salt '*' test.ping --return saltern`` and ``ext_job_cache: saltern`` make minions
store their returns themselves. An alternative set of options is used with
``--return_config alternative``, and read from ``alternative.saltern: {address: ...}`` or
``alternative.saltern.address: ...``. ``--return_kwargs '{"address": "tcp:10.0.0.9:4530"}'`` changes
``address``, ``token`` and the time-outs for one call; a configured token is not sent to an address
that came this way, and nothing waits in the spool for it.

**When Saltern is away.** What is to be stored is written to the spool, fsynced, and sent when
Saltern is back; a master goes on publishing. What is to be read raises one line with the address
and the cause. A Saltern that hangs costs one time-out: after it all processes of the master go
straight to the spool for 2 seconds, then 4, up to 30, with one call that tries.

**What is kept.** Values come back as ``local_cache`` gives them. Text with lone surrogates is kept
as it is. What MessagePack has no form for (an exception, a ``Decimal``) becomes its text, with a
warning. Passwords, tokens and the master's own key are taken out of loads before they leave the
process.
"""

import collections.abc
import contextlib
import datetime
import decimal
import json
import logging
import os
import pathlib
import platform
import reprlib
import socket
import stat
import struct
import sys
import threading
import time
import types
import uuid
import zlib

import salt.defaults
import salt.exceptions
import salt.utils.immutabletypes
import salt.utils.jid
import salt.utils.job
import salt.utils.msgpack
import salt.version

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
try:
    import msvcrt
except ImportError:  # everything else
    msvcrt = None
try:
    import pwd
except ImportError:  # Windows
    pwd = None

log = logging.getLogger(__name__)

__version__ = "0.1.0"
__virtualname__ = "saltern"

#: The version of the wire, docs/protocol.md.
_PROTOCOL = 1

#: Default options. None: depends on the system, see _options.
_DEFAULTS = {
    "address": None,
    "token": None,
    "namespace": None,
    "connect_timeout": 0.2,
    "timeout": 1.0,
    "list_timeout": 30.0,
    "spool_dir": None,
    "spool_max": 1 << 30,
}
#: What ret_kwargs may set: they come with a job, and a job must not choose where files are written.
_FROM_KWARGS = ("address", "token", "connect_timeout", "timeout", "list_timeout")

#: The largest payload where no Saltern has named its own limit yet.
_MAX_PAYLOAD = 64 << 20
#: Refusals after which the same request may succeed later.
_LATER = ("busy", "full", "unavailable")
#: Refusals after which a smaller request may succeed.
_SMALLER = ("too-large", "invalid")
#: Keys of a load, and of its kwargs, that nobody needs for looking at a job and that open doors.
_SECRETS = ("key", "token", "password", "tok")


class SalternUnavailable(salt.exceptions.NotImplemented):
    """
    What is asked for cannot be read now: Saltern is away, or its store is.

    A NotImplemented, because that is the one exception that Salt's runners print as a line without
    a stack trace.
    """


def __virtual__():
    return __virtualname__


# ---- What Salt calls: writing -------------------------------------------------------------------


def prep_jid(nocache=False, passed_jid=None):
    """
    Give the id for a new job, or the one passed.
    """
    if passed_jid:
        # Runs before the event of every return: no I/O here.
        return str(passed_jid)
    o = _options()
    try:
        jid = _exchange(o, [_request("prep_jid", bool(nocache), o.keep)])[0]
    except (_Away, _Refused):
        # With nocache too: that the returns of this one job are kept is better than no job.
        jid = _Spool.of(o).local_jid(o)
    minted = _process().minted
    minted[jid] = None
    while len(minted) > 1000:  # a jid whose load never came
        minted.pop(next(iter(minted)), None)
    return jid


def save_load(jid, clear_load, minions=None):
    """
    Store the load of a job, and the minions that are expected to return.

    Salt calls this for every return too, with the return as the load, and then returner(). Such a
    load is held and goes with the return, in one round trip. With ``job_cache: False`` or
    ``ext_job_cache`` returner() does not follow for a jid that was minted here ('req'), so the
    first load of such a jid is stored at once.
    """
    jid = str(jid)
    o = _options()
    load = clear_load if isinstance(clear_load, collections.abc.Mapping) else {}
    minted = _process().minted.pop(jid, _MISSING) is not _MISSING
    if minions is None and not minted and "return" in load and "id" in load:
        _flush_held(o)
        _process().local.held = (jid, load)
        return
    _tell(o, "save_load", *_load_params(o, jid, load, minions))


def save_minions(jid, minions, syndic_id=None):
    """
    Add to the minions that are expected to return for a job.
    """
    o = _options()
    syndic = None if syndic_id is None else str(syndic_id)
    _tell(o, "save_minions", str(jid), _ids(minions), syndic, o.keep)


def returner(ret):
    """
    Store the return of a minion. The first one stays; False tells that there was one.
    """
    missing = _missing(ret, "jid", "id", "return")
    if missing:
        log.error("Return not stored: it has no %r", missing)
        return None
    jid = str(ret["jid"])
    if jid == "nocache":
        return None
    if jid == "req":
        jid = ret["jid"] = prep_jid(nocache=ret.get("nocache", False))
        _process().minted.pop(jid, None)
    o = _options(ret)
    held = _take_held(o, jid, ret["id"])
    if held is not None:
        load = _load_params(o, jid, _without_return(held), None, shape="return")
    elif not o.is_master:
        # Stored from a minion, nobody else may ever send a load. One that a master published wins.
        load = _load_params(o, jid, _load_of(ret), [ret["id"]], shape="return")
    else:
        load = None
    outcome = _tell(o, "save_return", *_return_params(o, jid, ret), load)
    if outcome == "differs":
        log.warning(
            "%s returned again for job %s, with another result; the first one stays",
            _shown(ret["id"]),
            _shown(jid),
        )
    return False if outcome in ("repeat", "differs") else None


def update_endtime(jid, time):  # pylint: disable=redefined-outer-name
    """
    Store the end time of a job, a text; the last one stays.
    """
    o = _options()
    _tell(o, "update_endtime", str(jid), str(time), o.keep)


def event_return(events):
    """
    Store events, all of one call in one round trip.
    """
    if not events:
        return
    o = _options()
    now = time.time_ns() // 1000
    packed = []
    for number, event in enumerate(list(events)):  # the caller empties its list
        # A resend has the same id and stores nothing twice; ids sort as the events came.
        ident = struct.pack(">Q8s", now + number, os.urandom(8))
        tag, data, surrogates = _event(event)
        packed.append([ident, tag, data, surrogates])
    for part in _parts(packed, size=lambda e: len(e[2]), limit=8 << 20):
        _tell(o, "save_events", o.id, part)


def clean_old_jobs():
    """
    Send what waits in the spool, and let Saltern remove expired jobs.
    """
    # An exception here would end the master's maintenance process.
    with contextlib.suppress(_Away, _Refused):
        _exchange(_options(), [_request("clean_old_jobs")], slice_seconds=1.0)


def save_reg(data):
    """
    Store the register of Thorium.
    """
    o = _options()
    _tell(o, "save_reg", o.id, _packed(data, "the register")[0])


# ---- What Salt calls: reading -------------------------------------------------------------------


def get_load(jid):
    """
    Give the load of a job, with its Minions, or {}.
    """
    o = _options()
    load = _ask(o, "get_load", str(jid), empty=None)
    if load is None:
        return {}
    if "return" not in load and "id" in load and "jid" in load:
        # A return as a load: it was stored without the result, which the return itself has.
        found = get_jid(jid).get(load["id"])
        if found and "return" in found:
            load["return"] = found["return"]
    return load


def get_jid(jid):
    """
    Give the returns of a job: {minion: the return as the minion sent it}.
    """
    o = _options()
    returns, after = {}, ""
    while after is not None:
        page, after = _ask(o, "get_jid", str(jid), after, empty=[{}, None])
        returns.update(page)
    return returns


def get_fun(fun):
    """
    Give {minion: function} for the minions whose last function it was.
    """
    return _ask(_options(), "get_fun", str(fun), slow=True, empty={})


def get_jids():
    """
    Give all jobs: for the master's runner {jid: description}, on a minion the list of ids.
    """
    o = _options()
    if not o.is_master:
        return sorted(_jobs(o, {"loads": False}))
    endtimes = _dunder("__opts__").get("job_cache_store_endtime")
    found = {}
    for jid, load, _, endtime in _jobs(o, {"loads": True}):
        found[jid] = _described(jid, load)
        if endtimes and endtime:
            found[jid]["EndTime"] = endtime
    return found


def get_jids_filter(count, filter_find_job=True):
    """
    Give the newest jobs as a list of descriptions, oldest first.
    """
    count = int(count)
    header = {"loads": True, "not_fun": ["saltutil.find_job"] if filter_find_job else []}
    found = []
    if count > 0:
        for jid, load, _, _ in _jobs(_options(), header, count):
            found.append({**_described(jid, load), "JID": jid})
    return found[::-1]


def get_minions():
    """
    Give the ids of the minions that have a return.
    """
    return _ask(_options(), "get_minions", slow=True, empty=[])


def get_endtime(jid):
    """
    Give the end time of a job as it was stored, or False.
    """
    return _ask(_options(), "get_endtime", str(jid), empty=None) or False


def load_reg():
    """
    Give the register of Thorium, or {}.
    """
    o = _options()
    packed = _ask(o, "load_reg", o.id, empty=None)
    return {} if packed is None else _unpacked(packed)


# ---- Loads, returns, events ---------------------------------------------------------------------

_MISSING = object()


def _missing(ret, *fields):
    """
    The first of the fields that a return does not have.
    """
    if not isinstance(ret, collections.abc.Mapping):
        return fields[0]
    return next((field for field in fields if field not in ret), None)


def _flush_held(o):
    """
    Store a return-shaped load for which no returner() came.
    """
    held = getattr(_process().local, "held", None)
    if held is not None:
        _process().local.held = None
        _tell(o, "save_load", *_load_params(o, *held, None))


def _take_held(o, jid, minion):
    """
    The load that save_load() held for this return, or None.
    """
    held = getattr(_process().local, "held", None)
    if held is None:
        return None
    if held[0] != jid or held[1].get("id") != minion:
        _flush_held(o)
        return None
    _process().local.held = None
    return held[1]


def _without_return(load):
    """
    The load without the result: that is in the return beside it, and get_load() puts it back.
    """
    return {key: value for key, value in load.items() if key != "return"}


def _load_of(ret):
    """
    A load for a return that has none: what is known of the job from its return.
    """
    load = {
        "jid": str(ret["jid"]),
        "fun": ret.get("fun", ""),
        "arg": ret.get("arg", ret.get("fun_args")) or [],
        "tgt": ret["id"],
        "tgt_type": "glob",
    }
    for key in ("user", "metadata"):
        if key in ret:
            load[key] = ret[key]
    return load


def _load_params(o, jid, load, minions, shape=None):
    """
    The header of a load, the load itself packed, and its minions or None.
    """
    if shape is None:
        shape = "load"
        if "return" in load:
            shape = "return"
        elif minions is not None and "tgt" in load:
            shape = "publish"
    if minions is None and o.is_master and load.get("tgt"):
        minions = _expected(load)
    packed, surrogates = _packed(_scrubbed(load), "the load of job %s", jid)
    header = {
        "jid": jid,
        "shape": shape,
        "fun": _joined(load.get("fun")),
        "tgt": _joined(load.get("tgt")),
        "tgt_type": _joined(load.get("tgt_type")),
        "user": _joined(load.get("user")),
        "master": o.master,
        "keep": o.keep,
        "surrogates": surrogates or None,
    }
    return _there(header), packed, None if minions is None else _ids(minions)


def _expected(load):
    """
    The minions that a target matches, as local_cache finds them where the caller gave none.
    """
    try:
        import salt.utils.minions  # heavy, and seldom needed

        check = salt.utils.minions.CkMinions(_dunder("__opts__"))
        return check.check_minions(load["tgt"], load.get("tgt_type", "glob"))["minions"]
    except Exception as err:  # pylint: disable=broad-except
        # Whatever a target can do to the matchers: the load is worth more than its minions.
        log.debug("Minions of a target not found: %s", err)
        return None


def _scrubbed(load):
    """
    A copy of the load without passwords, tokens and the master's own key.
    """
    clean = {key: value for key, value in load.items() if key not in _SECRETS}
    kwargs = clean.get("kwargs")
    if isinstance(kwargs, collections.abc.Mapping):
        clean["kwargs"] = {key: value for key, value in kwargs.items() if key not in _SECRETS}
    return clean


def _return_params(o, jid, ret):
    """
    The header of a return, its result packed, the rest packed, and its times packed.

    The times are apart because they alone differ when a minion sends a return again.
    """
    what = "the return of %s for job %s"
    packed, surrogates = _packed(ret["return"], what, ret["id"], jid)
    times = {key: ret[key] for key in ("_stamp", "ts") if key in ret}
    rest = {key: ret[key] for key in ret if key != "return" and key not in times}
    packed_rest, rest_surrogates = _packed(rest, what, ret["id"], jid)
    retcode, success = ret.get("retcode"), ret.get("success")
    header = {
        "jid": jid,
        "id": _joined(ret["id"]),
        "fun": _joined(ret.get("fun")),
        "master": o.master,
        "keep": o.keep,
        "retcode": retcode if _is_int64(retcode) else None,
        "success": success if isinstance(success, bool) else None,
        "failed": _failed(ret) or None,
        "surrogates": (surrogates or rest_surrogates) or None,
    }
    return _there(header), packed, packed_rest, _packed(times, what, ret["id"], jid)[0]


def _failed(ret):
    """
    Whether a return tells of a failure: a retcode, a success that is False, a failed state.
    """
    if any(_is_int64(code) and code != 0 for code in _each(ret.get("retcode"))):
        return True
    if any(success is False for success in _each(ret.get("success"))):
        return True
    result = ret["return"]
    if not isinstance(result, dict):
        return False
    if result.get("success") is False and "fun_args" in result:  # a runner's
        return True
    return any(
        isinstance(state, dict) and state.get("result") is False and "__run_num__" in state
        for state in result.values()
    )


def _each(value):
    """
    The values of a job with several functions, or the one of a job with one.
    """
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else (value,)


def _is_int64(value):
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _event(event):
    """
    The tag of an event, its data packed, and whether that has lone surrogates.
    """
    tag, data = "", event
    if isinstance(event, collections.abc.Mapping) and ("tag" in event or "data" in event):
        tag, data = event.get("tag", ""), event.get("data")
    if isinstance(tag, bytes):
        tag = tag.decode("utf-8", "surrogateescape")
    tag = "" if tag is None else str(tag)
    packed, surrogates = _packed(data, "the event %s", tag)
    return tag, packed, surrogates


def _described(jid, load):
    """
    The description of a job as Salt's runners want it, whatever the load is like.
    """
    load = dict(load) if isinstance(load, dict) else {}
    for key in ("arg", "fun", "tgt", "tgt_type", "user", "kwargs"):
        if load.get(key) is None:
            load.pop(key, None)
    if isinstance(load.get("arg"), (str, bytes)) or not isinstance(load.get("arg", []), list):
        load["arg"] = [load["arg"]]
    if not isinstance(load.get("kwargs", {}), dict):
        load.pop("kwargs")
    if not isinstance(load.get("tgt", ""), (str, list)):
        load["tgt"] = str(load["tgt"])
    for key, default in (("fun", "unknown-function"), ("tgt_type", "list"), ("user", "root")):
        load[key] = _joined(load.get(key)) or default
    try:
        return salt.utils.jid.format_jid_instance(jid, load)
    except (IndexError, ValueError):  # 20 digits that are no date
        return {**salt.utils.jid.format_job_instance(load), "StartTime": ""}


def _jobs(o, header, count=None):
    """
    Jobs, newest first, asked for page by page.
    """
    left, cursor = count, None
    while left is None or left > 0:
        page = {"limit": 2000 if left is None else min(left, 2000), **header}
        if cursor is not None:
            page["cursor"] = cursor
        rows, cursor, _ = _ask(o, "list_jobs", page, slow=True, empty=[[], None, 0])
        yield from rows if left is None else rows[:left]
        if left is not None:
            left -= len(rows)
        if cursor is None:
            return


def _ids(minions):
    """
    Minion ids as a list. Those that no minion can have are left out: one bad id must not keep a
    job from being stored.
    """
    if isinstance(minions, (str, bytes)):
        minions = [minions]
    ids = [_joined(minion) for minion in minions or ()]
    return [ident for ident in ids if ident and len(ident) <= 255]


def _joined(value):
    """
    A value as the text of a header: what is a list is joined with commas.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(str(_joined(one)) for one in value)
    return str(value)


def _there(header):
    """
    The header without the keys that have no value.
    """
    return {key: value for key, value in header.items() if value is not None}


def _parts(rows, size, limit):
    """
    Cut a list into parts that have no more than limit bytes each, or one row.
    """
    part, held = [], 0
    for row in rows:
        if part and held + size(row) > limit:
            yield part
            part, held = [], 0
        part.append(row)
        held += size(row)
    yield part


def _shown(text):
    """
    Text of somebody else's making, for a log: quoted and short.
    """
    return reprlib.repr(text)
