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
import re
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


_HOLDER = f"_saltern_{__version__}"


def _shared(cls):
    """
    The class of this name that all copies of this module in the process use.

    Each further loader in a process runs the module again, in 3006 as a module of its own. What the
    process holds is made by one of them and used by all, so they have to mean the same exceptions.
    """
    return vars(_holder()).setdefault(cls.__name__, cls)


def _holder():
    """A place in the process that is not this module; see _process."""
    held = sys.modules.get(_HOLDER)
    if held is None:
        held = sys.modules.setdefault(_HOLDER, types.ModuleType(_HOLDER))
    return held


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


def update_endtime(jid, endtime):
    """
    Store the end time of a job, a text; the last one stays.
    """
    o = _options()
    _tell(o, "update_endtime", str(jid), str(endtime), o.keep)


def event_return(events):
    """
    Store events, all of one call in one round trip.
    """
    if not events:
        return
    o = _options()
    events = list(events)  # the caller empties its own
    process = _process()
    # Ids sort as the events came. A resend has the same id, and stores nothing twice.
    first = max(time.time_ns() // 1000, process.event)
    process.event = first + len(events)
    packed = []
    for number, event in enumerate(events, first):
        tag, data, surrogates = _event(event)
        packed.append([struct.pack(">Q8s", number, os.urandom(8)), tag, data, surrogates])
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
        found = get_jid(jid).get(_joined(load["id"]))
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
    endtimes = _opts().get("job_cache_store_endtime")
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
    """The first of the fields that a return does not have."""
    if not isinstance(ret, collections.abc.Mapping):
        return fields[0]
    return next((field for field in fields if field not in ret), None)


def _flush_held(o):
    """Store a return-shaped load for which no returner() came."""
    held = getattr(_process().local, "held", None)
    if held is not None:
        _process().local.held = None
        _tell(o, "save_load", *_load_params(o, *held, None))


def _take_held(o, jid, minion):
    """The load that save_load() held for this return, or None."""
    held = getattr(_process().local, "held", None)
    if held is None:
        return None
    if held[0] != jid or held[1].get("id") != minion:
        _flush_held(o)
        return None
    _process().local.held = None
    return held[1]


def _without_return(load):
    """The load without the result: that is in the return beside it, and get_load() puts it back."""
    return {key: value for key, value in load.items() if key != "return"}


def _load_of(ret):
    """A load for a return that has none: what is known of the job from its return."""
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
    """The header of a load, the load itself packed, and its minions or None."""
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
    """The minions that a target matches, as local_cache finds them where the caller gave none."""
    try:
        import salt.utils.minions  # heavy, and seldom needed

        check = salt.utils.minions.CkMinions(_opts())
        return check.check_minions(load["tgt"], load.get("tgt_type", "glob"))["minions"]
    except Exception as err:  # pylint: disable=broad-except
        # Whatever a target can do to the matchers: the load is worth more than its minions.
        log.debug("Minions of a target not found: %s", err)
        return None


def _scrubbed(load):
    """A copy of the load without passwords, tokens and the master's own key."""
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
    """Whether a return tells of a failure: a retcode, a success that is False, a failed state."""
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
    """The values of a job with several functions, or the one of a job with one."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else (value,)


def _is_int64(value):
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _event(event):
    """The tag of an event, its data packed, and whether that has lone surrogates."""
    tag, data = "", event
    if isinstance(event, collections.abc.Mapping) and ("tag" in event or "data" in event):
        tag, data = event.get("tag", ""), event.get("data")
    if isinstance(tag, bytes):
        tag = tag.decode("utf-8", "surrogateescape")
    tag = "" if tag is None else str(tag)
    packed, surrogates = _packed(data, "the event %s", tag)
    return tag, packed, surrogates


def _described(jid, load):
    """The description of a job as Salt's runners want it, whatever the load is like."""
    load = dict(load) if isinstance(load, dict) else {}
    for key in ("arg", "fun", "tgt", "tgt_type", "user", "kwargs"):
        if load.get(key) is None:
            load.pop(key, None)
    if isinstance(load.get("arg"), (str, bytes)) or not isinstance(load.get("arg", []), list):
        load["arg"] = [load["arg"]]
    if not isinstance(load.get("kwargs", {}), dict):
        load.pop("kwargs")
    if isinstance(load.get("tgt"), list):
        load["tgt"] = [str(_joined(one)) for one in load["tgt"]]
    elif "tgt" in load:
        load["tgt"] = _joined(load["tgt"])
    for key, default in (("fun", "unknown-function"), ("tgt_type", "list"), ("user", "root")):
        load[key] = _joined(load.get(key)) or default
    try:
        return salt.utils.jid.format_jid_instance(jid, load)
    except (IndexError, ValueError):  # 20 digits that are no date
        return {**salt.utils.jid.format_job_instance(load), "StartTime": ""}


def _jobs(o, header, count=None):
    """Jobs, newest first, asked for page by page."""
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
    if isinstance(minions, (str, bytes)) or not isinstance(minions, collections.abc.Iterable):
        minions = [minions]
    ids = [_joined(minion) or "" for minion in minions]
    return [ident for ident in ids if 0 < len(ident.encode("utf-8", "surrogatepass")) <= 1024]


def _joined(value):
    """A value as the text of a header: what is a list is joined with commas."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(str(_joined(one)) for one in value)
    return str(value)


def _there(header):
    """The header without the keys that have no value."""
    return {key: value for key, value in header.items() if value is not None}


def _parts(rows, size, limit):
    """Cut a list into parts that have no more than limit bytes each, or one row."""
    part, held = [], 0
    for row in rows:
        if part and held + size(row) > limit:
            yield part
            part, held = [], 0
        part.append(row)
        held += size(row)
    yield part


def _shown(text):
    """Text of somebody else's making, for a log: quoted and short."""
    return reprlib.repr(text)


# ---- Values -------------------------------------------------------------------------------------


def _packed(value, what, *names):
    """
    A value as MessagePack in the very form of salt.payload.dumps(value, use_bin_type=True), and
    whether it has text with lone surrogates, which that function refuses.

    Not by that function: for a value that it cannot pack at once it changes the caller's own value,
    and what it cannot pack then is lost. ``what`` and ``names`` tell in the log what the value is.
    """
    odd = []
    try:
        packed, surrogates = _pack_as_salt(value, _Default(odd))
    except Exception:  # pylint: disable=broad-except
        # Whatever it was: a value that is almost right is worth more than none.
        packed, surrogates = _pack_as_salt(_plain_or_text(value, odd), _Default(odd))
    if odd:
        log.warning(
            "Stored as text what MessagePack has no form for (%s) in " + what,
            ", ".join(sorted(set(odd))),
            *(_shown(name) for name in names),
        )
    return packed, surrogates


def _pack_as_salt(value, default):
    """Pack a value, and say whether it has lone surrogates."""
    try:
        packed = salt.utils.msgpack.packb(value, default=default, use_bin_type=True)
    except UnicodeEncodeError:
        return _pack(value, default), True
    return packed, False


def _pack(value, default=None):
    """Pack what is ours to send, and what has lone surrogates."""
    return salt.utils.msgpack.packb(
        value, default=default, use_bin_type=True, unicode_errors="surrogatepass"
    )


class _Default:
    """
    What salt.payload does with types that MessagePack does not know, and text for those that
    salt.payload does not know either; their names are added to ``odd``.
    """

    def __init__(self, odd):
        self.odd = odd

    def __call__(self, obj):
        if isinstance(obj, int):  # below -2**63 or from 2**64 on
            return str(obj)
        if isinstance(obj, (datetime.datetime, datetime.date)):
            text = obj.strftime("%Y%m%dT%H:%M:%S.%f")
            return salt.utils.msgpack.ExtType(78, text.encode())
        if isinstance(obj, salt.defaults._Constant):
            return salt.utils.msgpack.ExtType(79, _pack((obj.name, obj.value), self))
        if isinstance(obj, collections.abc.Mapping):
            return dict(obj)
        if isinstance(obj, salt.utils.immutabletypes.ImmutableList):
            return list(obj)
        if isinstance(obj, (collections.abc.Set, collections.abc.ValuesView)):
            return tuple(obj)
        return _text(obj, self.odd)


def _text(obj, odd):
    """The text of something that cannot be restored."""
    odd.append(type(obj).__name__)
    plain = isinstance(obj, (decimal.Decimal, uuid.UUID, pathlib.PurePath))
    try:
        return str(obj) if plain else repr(obj)
    except Exception:  # pylint: disable=broad-except
        # The object is somebody else's, and so is its repr.
        return f"<{type(obj).__name__}>"


#: How deep _plain goes: less than what Python's stack, MessagePack and Saltern bear.
_PLAIN_DEPTH = 200


def _plain_or_text(value, odd):
    try:
        return _plain(value, odd)
    except Exception:  # pylint: disable=broad-except
        # The stack is used up by those who called us, or somebody changes the value meanwhile.
        return _text(value, odd)


def _plain(value, odd, path=()):
    """A copy of a value that can be packed: what nests too deeply or holds itself becomes text."""
    if not isinstance(value, (collections.abc.Mapping, list, tuple, collections.abc.Set)):
        known = (str, bytes, bytearray, int, float, type(None), datetime.date)
        return value if isinstance(value, known) else _text(value, odd)
    if len(path) >= _PLAIN_DEPTH or id(value) in path:
        odd.append("nesting")
        return f"<{type(value).__name__}, nested too deeply>"
    path = (*path, id(value))
    if isinstance(value, collections.abc.Mapping):
        copy = {}
        for key in list(value):
            copy[_plain_key(key, odd)] = _plain(value[key], odd, path)
        return copy
    copy = []
    for one in list(value):
        copy.append(_plain(one, odd, path))
    return copy


def _plain_key(key, odd):
    known = (str, bytes, int, float, type(None), datetime.date)
    return key if isinstance(key, known) else _text(key, odd)


def _unpacked(packed):
    """One packed value."""
    unpacker = _unpacker(True)
    unpacker.feed(packed)
    return unpacker.unpack()


def _unpacker(careful=False):
    """
    A decoder of a stream, like salt.payload.loads(..., encoding="utf-8"). A careful one is slower,
    and can also read maps whose keys are lists (tuples, before they were packed).
    """
    hook = {"object_pairs_hook": _hashable_keys} if careful else {}
    return salt.utils.msgpack.Unpacker(
        raw=False,
        use_list=True,
        ext_hook=_restored,
        unicode_errors="surrogatepass",
        max_buffer_size=0,
        **hook,
    )


def _hashable_keys(pairs):
    return {_tupled(key): value for key, value in pairs}


def _tupled(key):
    return tuple(_tupled(one) for one in key) if isinstance(key, list) else key


def _restored(code, data):
    """The value of an extension type of salt.payload."""
    try:
        if code == 78:
            return datetime.datetime.strptime(data.decode(), "%Y%m%dT%H:%M:%S.%f")
        if code == 79:
            return salt.defaults._Constant(*_unpacked(data))
    except (TypeError, ValueError):
        log.debug("Extension type %d with a value that salt.payload does not write", code)
    return salt.utils.msgpack.ExtType(code, data)


def _shrunk(method, params, why, limit):
    """
    The parameters of a write with stubs in the place of what Saltern refuses, so that half of the
    limit, or of what it is now, is left. ``why`` is the name of the refusal. None where nothing is
    known to be left out.
    """
    size = sum(len(part) for part in _payloads(method, params) if part)
    room = min(limit, size) // 2
    if method == "save_return":
        header, result, rest, times, load = params
        stub = _stub(result, why, limit)
        stub.update({key: header[key] for key in ("retcode", "success") if key in header})
        rest = _without_large(rest, why, limit, room)
        if load is not None:
            load = [load[0], _without_large(load[1], why, limit, room), load[2]]
        params = [header, _pack(stub), rest, times, load]
        what = ("the return of %s for job %s", _shown(header["id"]), _shown(header["jid"]))
    elif method == "save_load":
        header, load, minions = params
        params = [header, _without_large(load, why, limit, room), minions]
        what = ("the load of job %s", _shown(header["jid"]))
    elif method == "save_events":
        master, events = params
        room //= len(events)
        events = [[*e[:2], _without_large(e[2], why, limit, room), *e[3:]] for e in events]
        params = [master, events]
        what = ("events, the first with the tag %s", _shown(events[0][1]))
    else:
        return None
    log.warning("Stored only a part of " + what[0] + " (%d bytes): %s", *what[1:], size, why)
    return params


def _without_large(packed, why, limit, room):
    """
    A packed map with stubs for its largest values, so that about ``room`` bytes are left; a stub
    for what is no map. Where Saltern calls a value invalid, it is the nesting.
    """
    if len(packed) <= room and why != "invalid":
        return packed
    value = _try_unpacked(packed)
    if not isinstance(value, dict):
        return _pack(_stub(packed, why, limit))
    default = _Default([])
    parts = {key: _pack(one, default) for key, one in value.items()}
    left = len(packed)
    for key in sorted(parts, key=lambda key: len(parts[key]), reverse=True):
        if why == "invalid" and not isinstance(value[key], (dict, list)):
            continue
        if why != "invalid" and left <= room:
            break
        left -= len(parts[key])
        value[key] = _stub(parts[key], why, limit)
    return _pack(value, default)


def _stub(packed, why, limit):
    """What is stored in the place of a value that Saltern refuses."""
    return {
        "saltern": f"this value was not stored: {why}",
        "size": len(packed),
        "limit": limit,
        "head": _head(packed),
    }


def _head(packed):
    """The beginning of a packed value, readable."""
    value = _try_unpacked(packed)
    if isinstance(value, (str, bytes)):
        return value[:1000]
    short = reprlib.Repr()
    short.maxstring = short.maxother = 200
    short.maxdict = short.maxlist = 10
    return short.repr(value)


def _try_unpacked(packed):
    try:
        return _unpacked(packed)
    except Exception:  # pylint: disable=broad-except
        # Nested too deeply, most likely: the decoder has several exceptions for it.
        return bytes(packed)


def _payloads(method, params):
    """The packed values among the parameters of a write."""
    if method == "save_return":
        return (*params[1:4], params[4][1] if params[4] else None)
    if method == "save_load":
        return (params[1],)
    if method == "save_events":
        return tuple(event[2] for event in params[1])
    return ()


# ---- Options ------------------------------------------------------------------------------------


class _Options:
    """The options of one call."""

    __slots__ = (
        *_DEFAULTS,
        "role",
        "is_master",
        "id",
        "keep",
        "user",
        "profile",
        "foreign",
    )

    @property
    def master(self):
        """The id of the master that stores this; a minion does not know it."""
        return self.id if self.is_master else None


def _options(ret=None):
    """
    The options of this call. They are read once for each loader of Salt's, whose options do not
    change, and anew for a return that changes some of them.
    """
    loader = _loader()
    if loader is None or (ret and (ret.get("ret_config") or ret.get("ret_kwargs"))):
        return _read_options(ret or {})
    kept = vars(loader)
    if "_saltern_options" not in kept:
        kept["_saltern_options"] = _read_options({})
    return kept["_saltern_options"]


def _read_options(ret):
    """
    Read the options. A return on a minion may name another set of options (ret_config) and change
    some of them (ret_kwargs). On a master it may not: there it is a minion that wrote it.
    """
    opts = _opts()
    pillar = _pillar(opts)
    o = _Options()
    o.role = str(opts.get("__role") or "")
    o.is_master = o.role in ("master", "syndic")
    if o.is_master:
        ret = {}
    o.id = str(opts.get("id") or "")
    o.user = opts.get("user")
    o.keep = _keep(opts, o.is_master)
    o.profile = str(ret.get("ret_config") or "")
    for key, default in _DEFAULTS.items():
        value = _setting(key, o.profile, opts, pillar)
        setattr(o, key, default if value is None else value)
    if o.address == _setting("address", "", opts, pillar):
        o.profile = ""  # a name that anybody may give with a job makes no spool of its own
    _change_for_one_call(o, ret.get("ret_kwargs"))
    for key in ("connect_timeout", "timeout", "list_timeout", "spool_max"):
        setattr(o, key, _number(key, getattr(o, key)))
    if not o.address and hasattr(socket, "AF_UNIX"):
        o.address = "unix:/run/saltern/saltern.sock"
    if not o.spool_dir:
        o.spool_dir = "/var/spool/saltern"
        if os.name == "nt":
            data = os.environ.get("PROGRAMDATA", r"C:\ProgramData")
            o.spool_dir = os.path.join(data, "Saltern", "spool")
    return o


def _change_for_one_call(o, kwargs):
    """Apply ret_kwargs. An address that came with a job does not get the token that was set."""
    o.foreign = False
    if not isinstance(kwargs, collections.abc.Mapping):
        return
    if kwargs.get("address") and kwargs["address"] != o.address:
        o.foreign = True
        o.token = None
    for key in _FROM_KWARGS:
        if kwargs.get(key):
            setattr(o, key, kwargs[key])


def _loader():
    """The loader of Salt's that runs this call, or None."""
    try:
        return globals()["__salt_loader__"].loader()
    except (KeyError, AttributeError):
        return None


def _opts():
    """
    The options of the loader that runs this call.

    Not simply ``__opts__``: several loaders of a process share this module, and there 3008 lays the
    options of the first one over those of the others.
    """
    opts = getattr(_loader(), "opts", None) or globals().get("__opts__")
    return opts if isinstance(opts, collections.abc.Mapping) else {}


def _pillar(opts):
    pillar = globals().get("__pillar__")
    if hasattr(pillar, "value"):  # what the loader puts in
        try:
            pillar = pillar.value()
        except salt.exceptions.LoaderError:
            pillar = None
    pillar = pillar or opts.get("pillar")
    return pillar if isinstance(pillar, collections.abc.Mapping) else {}


def _setting(key, profile, *sources):
    """
    A setting from the first source that has it; in each the profile before the rest, and nested
    before flat.
    """
    prefixes = (f"{profile}.{__virtualname__}", __virtualname__) if profile else (__virtualname__,)
    for prefix in prefixes:
        for source in sources:
            for value in (_nested(source, prefix).get(key), source.get(f"{prefix}.{key}")):
                if value is not None and value != "":
                    return value
    return None


def _nested(source, prefix):
    """The mapping under a prefix: ``{"a.b": {}}`` or ``{"a": {"b": {}}}``."""
    found = source.get(prefix)
    if found is None and "." in prefix:
        outer, _, inner = prefix.rpartition(".")
        found = source.get(outer)
        found = found.get(inner) if isinstance(found, collections.abc.Mapping) else None
    return found if isinstance(found, collections.abc.Mapping) else {}


#: Above this a number is a mistake, and no time-out that a socket takes.
_LARGEST = {"spool_max": 1 << 50}
_HOUR = 3600.0


def _number(key, value):
    """A setting that has to be a number: a time-out above 0, or a size."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if (key in _LARGEST or number > 0) and 0 <= number <= _LARGEST.get(key, _HOUR):
        return number
    if _once(key):
        log.warning("saltern.%s is %s; %s is used", key, _shown(value), _DEFAULTS[key])
    return _DEFAULTS[key]


def _keep(opts, is_master):
    """For how many seconds jobs are to be kept, 0 for ever; None on a minion that does not say."""
    if "keep_jobs_seconds" not in opts and "keep_jobs" not in opts:
        return 86400 if is_master else None
    keep = opts.get("keep_jobs_seconds", 86400)
    if keep == 86400 and opts.get("keep_jobs", 24) != 24:  # hours, before 3008
        keep = opts["keep_jobs"]
        keep = keep * 3600 if isinstance(keep, (int, float)) else keep
    # A hundred years: as nanoseconds it still is a number that fits.
    if isinstance(keep, (int, float)) and not isinstance(keep, bool) and 0 <= keep <= 3155760000:
        return int(keep)
    used = 86400
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        used = min(int(keep), 3155760000)
    used = used if used >= 0 else 86400
    if _once("keep"):
        log.warning("keep_jobs_seconds is %s; %d is used", _shown(keep), used)
    return used


# ---- Calls --------------------------------------------------------------------------------------


@_shared
class _Away(Exception):
    """Saltern did not answer. ``hung``: it took the call, and time."""

    def __init__(self, address, cause, hung=False):
        super().__init__(f"Saltern at {address} cannot be reached: {cause}")
        self.cause = cause
        self.hung = hung


@_shared
class _Refused(Exception):
    """Saltern answered with an error; docs/protocol.md has the names."""

    def __init__(self, name, message):
        super().__init__(f"{name}: {message}")
        self.name = name


@_shared
class _Closed(Exception):
    """The connection was closed before the answer."""


@_shared
class _Unhashable(Exception):
    """The answer has a key that only a careful decoder can read."""


def _request(method, *params):
    """The method and parameters of a request, packed: what is sent, and what waits in the spool."""
    return _pack((method, params))[1:]  # without the head of the pair


def _ask(o, method, *params, slow=False, empty):
    """Read something. ``empty`` is what Saltern answers where there is nothing."""
    _flush_held(o)
    try:
        timeout = o.list_timeout if slow else o.timeout
        answer = _exchange(o, [_request(method, *params)], timeout)[0]
    except _Away as err:
        raise SalternUnavailable(str(err)) from None
    except _Refused as err:
        if err.name == "invalid":  # such a jid cannot be
            return empty
        raise SalternUnavailable(f"Saltern at {o.address} cannot answer {method}: {err}") from None
    if answer in (None, empty) and _Spool.of(o).waiting():
        # It may be among what waits: "there is none" would be a lie.
        raise SalternUnavailable(
            f"Saltern at {o.address} does not have all yet: requests wait in the spool"
        )
    return answer


def _tell(o, method, *params):
    """Write something. Raises nothing: what cannot be stored now waits in the spool."""
    if method != "save_return":
        _flush_held(o)
    size = sum(len(part) for part in _payloads(method, params) if part)
    limit = _limit(o, size)
    if size > limit:
        params = _shrunk(method, params, "too-large", limit)
    body = _request(method, *params)
    spool = _Spool.of(o)
    cause = None
    try:
        return _exchange(o, [body])[0]
    except _Away as err:
        cause = err
    except _Refused as err:
        cause = err
        if err.name in _LATER:
            spool.mark(o, _Away(o.address, str(err)))
        else:
            try:
                return _resent(o, body, err)
            except _Away as again:
                spool.mark(o, again)
    if o.foreign:
        log.error("%s not stored: %s; an address of ret_kwargs has no spool", method, cause)
    else:
        spool.append(o, body)
    return None


def _resent(o, body, refusal):
    """
    What becomes of a write that Saltern refused for good: it is sent once more with stubs, where
    that may help. Raises _Away.
    """
    unpacker = _unpacker(True)
    unpacker.feed(body)
    method, params = unpacker.unpack(), unpacker.unpack()
    smaller = None
    if refusal.name in _SMALLER:
        smaller = _shrunk(method, params, refusal.name, _limit(o, 0))
    if smaller is not None:
        error, result = _answers(o, [_request(method, *smaller)], o.timeout)[0]
        if error is None:
            return result
        refusal = _refusal(error)
        if refusal.name in _LATER:
            raise _Away(o.address, str(refusal))
    log.error("Saltern at %s refused %s for good: %s", o.address, method, refusal)
    return None


def _exchange(o, bodies, timeout=None, slice_seconds=0.05):
    """
    Send requests and give their results. Where Saltern was away, what waits in the spool goes
    first, for about slice_seconds. Raises _Away, or _Refused for the first that was refused.
    """
    timeout = o.timeout if timeout is None else timeout
    spool = _Spool.of(o)
    away = not o.foreign and spool.marked()
    # Who is turned away here has not tried, and has nothing to tell about Saltern.
    with spool.turn(o) if away else contextlib.nullcontext():
        try:
            drained = spool.drain(o, slice_seconds) if away else False
            answers = _answers(o, bodies, timeout)
        except _Away as err:
            spool.mark(o, err)
            raise
        if drained:
            spool.settle(o)
    for error, _ in answers:
        if error is not None:
            raise _refusal(error)
    return [result for _, result in answers]


def _refusal(error):
    if isinstance(error, list) and len(error) == 2:
        return _Refused(str(error[0]), str(error[1]))
    return _Refused("unavailable", "an error that is none of the protocol's")


def _answers(o, bodies, timeout):
    """The (error, result) of each request, over the connection of this thread."""
    local = _process().local
    key = (o.address, o.token, o.namespace)
    connection, local.connection = getattr(local, "connection", None), None
    idle = connection is not None and connection.key == key
    if not idle:
        connection = _Connection(o, key)
    try:
        answers = connection.exchange(bodies, timeout)
    except (_Closed, _Unhashable) as err:
        # One that was idle may have been closed long ago. What it got is safe to send again.
        careful = isinstance(err, _Unhashable)
        if not idle and not careful:
            raise _Away(o.address, str(err)) from None
        connection = _Connection(o, key, careful)
        try:
            answers = connection.exchange(bodies, timeout)
        except (_Closed, _Unhashable) as again:
            raise _Away(o.address, str(again)) from None
    if not o.foreign:
        local.connection = connection
    return answers


def _limit(o, size):
    """The largest payload that Saltern takes. It is asked where the size is near to any limit."""
    limits = _process().limits
    if o.address not in limits and size > 1 << 20 and not _Spool.of(o).marked():
        with contextlib.suppress(_Away, _Refused):
            _exchange(o, [_request("ping")])
    return limits.get(o.address, _MAX_PAYLOAD)


class _Connection:
    """A connection to Saltern. It is used by one thread of one process."""

    def __init__(self, o, key, careful=False):
        self.key = key
        self.address = o.address
        self.unpacker = _unpacker(careful)
        self.sent = 0
        self.seconds = None
        self.sock = _connected(o)
        self._hello(o)

    def __del__(self):
        sock = getattr(self, "sock", None)
        if sock is not None:
            sock.close()

    def _hello(self, o):
        header = {
            "protocol": _PROTOCOL,
            "returner": __version__,
            "salt": salt.version.__version__,
            "python": platform.python_version(),
            "role": o.role,
            "id": o.id,
            "pid": os.getpid(),
            "token": o.token,
        }
        try:
            error, result = self.exchange([_request("hello", _there(header))], o.timeout)[0]
        except (_Closed, _Unhashable) as err:
            raise _Away(self.address, str(err)) from None
        if error is not None:
            raise _Away(self.address, str(_refusal(error)))
        if not isinstance(result, dict):
            raise self._nonsense()
        if o.namespace and result.get("namespace") != o.namespace:
            raise _Away(self.address, "it serves another namespace than saltern.namespace says")
        if isinstance(result.get("max_payload"), int):
            _process().limits[self.address] = result["max_payload"]

    def exchange(self, bodies, timeout):
        """Send requests at once, and read an answer to each. After an exception it is closed."""
        try:
            return self._send_and_read(bodies, timeout)
        except BaseException as err:
            # An answer that is still to come must not become that of the next request.
            self.sock.close()
            if isinstance(err, (TimeoutError, BlockingIOError)):
                cause = f"no answer within {timeout:g} s"
                raise _Away(self.address, cause, hung=True) from None
            if isinstance(err, OSError):
                raise _Closed(_cause(err)) from None
            raise

    def _send_and_read(self, bodies, timeout):
        first = self.sent
        self.sent += len(bodies)
        parts = []
        for number, body in enumerate(bodies, first):
            parts += (b"\x94\x00\xce", struct.pack(">I", number & 0xFFFFFFFF), body)
        message = b"".join(parts)
        # Large values take time to compress and fsync: a second more for each 16 MiB.
        self._wait_for(timeout + (len(message) >> 20) / 16)
        view = memoryview(message)
        while view:
            view = view[self.sock.send(view) :]
        self.unpacker.feed(self._received())  # there is nothing left of the answers before
        return [self._answer(number & 0xFFFFFFFF) for number in range(first, self.sent)]

    def _wait_for(self, seconds):
        """
        How long to wait for a byte. Where the kernel can be told once, it is: settimeout() makes
        Python poll before each call, which is a tenth of the time of a get_load().
        """
        if seconds == self.seconds:
            return
        self.seconds = seconds
        if os.name != "nt":
            with contextlib.suppress(OSError):
                span = struct.pack("ll", int(seconds), max(1, int(seconds % 1 * 1_000_000)))
                for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                    self.sock.setsockopt(socket.SOL_SOCKET, option, span)
                self.sock.settimeout(None)
                return
        self.sock.settimeout(seconds)

    def _answer(self, number):
        """Read the answer to the request of a number."""
        try:
            answer = self._message()
        except (_Closed, OSError):
            raise
        except TypeError as err:
            raise _Unhashable("an answer that cannot be decoded") from err
        except Exception as err:  # pylint: disable=broad-except
            # The decoder has half a dozen exceptions for what is no MessagePack.
            raise self._nonsense() from err
        if not isinstance(answer, list) or len(answer) != 4 or answer[:2] != [1, number]:
            raise self._nonsense()
        return answer[2], answer[3]

    def _message(self):
        while True:
            try:
                return self.unpacker.unpack()
            except salt.utils.msgpack.exceptions.OutOfData:
                pass
            self.unpacker.feed(self._received())

    def _received(self):
        data = self.sock.recv(1 << 18)
        if not data:
            raise _Closed("the connection was closed")
        return data

    def _nonsense(self):
        return _Away(self.address, "what answers there is not Saltern")


def _connected(o):
    """A socket that is connected to the address."""
    network, _, where = str(o.address or "").partition(":")
    try:
        if network == "unix" and where:
            return _connected_unix(o, where)
        host, _, port = where.rpartition(":")
        if network == "tcp" and host and port.isdecimal() and int(port) < 1 << 16:
            target = (host.strip("[]"), int(port))
            sock = socket.create_connection(target, o.connect_timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    except (TimeoutError, BlockingIOError):
        # BlockingIOError: a Unix socket whose queue is full, since nobody accepts.
        cause = f"no connection within {o.connect_timeout:g} s"
        raise _Away(o.address, cause, hung=True) from None
    except OSError as err:
        raise _Away(o.address, _cause(err)) from None
    if not o.address:
        raise _Away("no address", "set saltern.address to tcp:HOST:PORT")
    raise _Away(o.address, "an address is unix:PATH or tcp:HOST:PORT")


def _connected_unix(o, path):
    if not hasattr(socket, "AF_UNIX"):
        raise _Away(o.address, "this system has no Unix sockets, set tcp:HOST:PORT")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(o.connect_timeout)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


def _cause(err):
    """What an OSError says, in short."""
    cause = (err.strerror or str(err) or type(err).__name__).lower()
    if isinstance(err, (FileNotFoundError, ConnectionRefusedError)):
        cause += " (is `saltern serve` running?)"
    return cause


# ---- The spool ----------------------------------------------------------------------------------
#
# A folder of its owner's, mode 0700, with files of mode 0600:
#
#   *.seg     segments of requests, named by the time at which they were begun; each request is
#             b"slt1", its length, its CRC32 (both four bytes, big-endian), and the request itself
#   lock      held while something is appended or removed
#   tail      the segment that is appended to, and the size up to which that is known to be whole
#   drain     held by the one process that sends what waits
#   sent      the segment that is being sent, and the offset up to which it was
#   away      is there from when Saltern goes away until nothing waits any more. A call without it
#             costs one look that it is not there. JSON: cause, until (before that time nobody
#             calls), delay, up (Saltern is back, the rest waits to be sent)
#   probe     made by the one process that calls a hung Saltern
#   full      a byte for each request that did not fit
#   jid       the last jid that was made here
#
# A request may be sent twice (a crash after it was sent, before that was noted): each says the same
# when it is repeated. A segment that a crash left torn is not appended to again, so that what is
# torn is the last request, which nobody was told is stored.

_RECORD = struct.Struct(">4sII")
_MAGIC = b"slt1"
#: Segments are begun anew from this size on, so that what was sent is soon given back.
_SEGMENT = 4 << 20
#: A batch that is sent at once: few enough requests that a slice of time is not much exceeded.
_BATCH = 32
_BATCH_BYTES = 1 << 20
#: Seconds after which what is torn at the end of a segment is not being written any more.
_TORN = 60.0
#: Seconds for which a hung Saltern is left alone, at first and at most.
_DELAY = 2.0
_MAX_DELAY = 30.0


class _Spool:
    """The folder where requests wait for Saltern. None of the methods raises an OSError."""

    @staticmethod
    def of(o):
        """The spool of these options; kept, for its folder does not move."""
        spools = _process().spools
        key = (o.spool_dir, o.is_master, o.profile)
        if key not in spools:
            spools[key] = _Spool(o)
        return spools[key]

    def __init__(self, o):
        self.prefix = ""
        if o.profile:
            self.prefix = f"{zlib.crc32(o.profile.encode('utf-8', 'replace')):08x}-"
        self.folder = os.path.join(str(o.spool_dir), "master" if o.is_master else "minion")
        if hasattr(os, "geteuid"):
            self._choose_folder()
        self.segment = re.compile(re.escape(self.prefix) + r"\d{20}-\d+\.seg")
        self.away = self._path("away")
        self.memory = None  # the state, where no file can be made

    def _choose_folder(self):
        """
        Where the folder is another user's, we have our own beside it. root uses theirs, and gives
        them the files: salt-run as root stores for a master that runs as somebody else.
        """
        me = os.geteuid()
        with contextlib.suppress(OSError):
            if me not in (0, os.lstat(self.folder).st_uid):
                self.folder = f"{self.folder}.{me}"

    # -- the state

    def marked(self):
        """Whether Saltern was away, or something still waits."""
        return self.memory is not None or os.access(self.away, os.F_OK)

    def waiting(self):
        """Whether requests wait."""
        return self.marked() and bool(self._segments())

    def mark(self, o, away):
        """Note that Saltern is away, for all processes. The first one logs it."""
        if o.foreign:
            return
        with contextlib.suppress(OSError):
            self._make_folder(o)
        now = time.time()
        with self._lock() as locked:
            state = self._state()
            new = not state or state.get("up", False)
            if not new and (state["until"] > now or not (away.hung or state["delay"])):
                return  # noted: several processes ran into it at once, or there is no news
            delay = 0.0
            if away.hung:
                delay = min(2 * state["delay"], _MAX_DELAY) if state else 0.0
                delay = max(delay, _DELAY)
            self._set_state({"cause": away.cause, "until": now + delay, "delay": delay}, locked)
        if new:
            text = "Saltern at %s is away: %s; what is to be stored waits in %s"
            log.warning(text, o.address, away.cause, self.folder)

    @contextlib.contextmanager
    def turn(self, o):
        """Let a call through to a Saltern that was away; raises _Away where it is not yet time."""
        state = self._state()
        if not state or not state["delay"]:
            yield
            return
        wait = state["until"] - time.time()
        # Later than the longest delay: the clock was set back.
        if 0 < wait <= _MAX_DELAY or not self._take_probe(o):
            raise _Away(o.address, state["cause"], hung=True)
        try:
            yield
        finally:
            self._unlink("probe")

    def _take_probe(self, o):
        """Become the one that tries. One that died at it is replaced after its time."""
        path = self._path("probe")
        with contextlib.suppress(OSError):
            age = time.time() - os.stat(path).st_mtime
            if not 0 <= age <= 5 + o.connect_timeout + 3 * o.timeout + o.list_timeout:
                os.unlink(path)
        try:
            os.close(self._open(self.prefix + "probe", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        except OSError:
            return True  # no folder: each process for itself
        return True

    def settle(self, o):
        """Saltern answers. Once nothing waits, the mark goes."""
        dropped = 0
        with self._lock() as locked:
            state = self._state()
            if not state:
                return
            empty = not self._segments()
            if empty:
                self.memory = None
                with contextlib.suppress(OSError):
                    dropped = os.stat(self._path("full")).st_size
                for name in ("away", "full", "sent"):
                    self._unlink(name)
            elif not state.get("up"):
                self._set_state({**state, "until": 0.0, "delay": 0.0, "up": True}, locked)
        if not state.get("up"):
            log.warning("Saltern at %s is back; what waits in %s is sent", o.address, self.folder)
        if dropped:
            log.error("%d requests were lost: the spool %s was full", dropped, self.folder)

    def _state(self):
        """The state, or None when Saltern is not away."""
        if self.memory is not None:
            return self.memory
        try:
            with open(self.away, encoding="utf-8") as file:
                state = json.load(file)
            return {**state, "until": float(state["until"]), "delay": float(state["delay"])}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError):
            return {"cause": "unknown", "until": 0.0, "delay": 0.0, "up": True}

    def _set_state(self, state, locked):
        """Replace the state. ``locked``: what _lock() gave; without a folder it stays in memory."""
        if locked is None:
            self.memory = state
            return
        try:
            new = f"{self.prefix}away.{os.getpid()}.{threading.get_ident()}"
            with os.fdopen(self._open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), "w") as file:
                json.dump(state, file)
            os.replace(os.path.join(self.folder, new), self.away)
        except OSError:
            self.memory = state

    # -- what waits

    def append(self, o, body):
        """Write a request, fsynced. Where that cannot be, it is counted and logged once."""
        record = _RECORD.pack(_MAGIC, len(body), zlib.crc32(body)) + body
        try:
            self._make_folder(o)
            with self._lock() as locked:
                if self._size() + len(record) > o.spool_max:
                    self._drop(o)
                    return
                self._write(record, locked)
                if not os.path.exists(self.away):
                    # Saltern came back, and the mark went, while we got here.
                    self._set_state({"cause": "", "until": 0.0, "delay": 0.0, "up": True}, locked)
        except OSError as err:
            if _once(("spool", self.folder, err.errno)):
                text = "Not stored: Saltern at %s is away, and its spool cannot be written: %s"
                log.error(text, o.address, err)

    def _drop(self, o):
        fd = self._open(f"{self.prefix}full", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            first = os.fstat(fd).st_size == 0
            os.write(fd, b".")
        finally:
            os.close(fd)
        if first:
            text = "The spool %s is full (%d bytes, saltern.spool_max): what comes now is lost"
            log.error(text, self.folder, o.spool_max)

    def _write(self, record, locked):
        """Append a record to the segment that is known to be whole, or begin one."""
        whole, size = self._noted("tail") if locked else (None, 0)
        fd = None
        if whole and size < _SEGMENT:
            with contextlib.suppress(OSError):
                fd = self._open(whole, os.O_WRONLY | os.O_APPEND)
        if fd is not None and os.fstat(fd).st_size != size:
            os.close(fd)
            fd = None
        begun = fd is None
        if begun:
            whole, size = f"{self.prefix}{time.time_ns():020d}-{os.getpid()}.seg", 0
            fd = self._open(whole, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND)
        try:
            view = memoryview(record)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)
            raise
        finally:
            os.close(fd)
        if begun:
            self._sync_folder()
        if locked:
            self._note("tail", whole, size + len(record))

    def drain(self, o, seconds):
        """
        Send what waits, oldest first, for about so long. True unless Saltern takes nothing now, or
        another process is at it. Raises _Away.
        """
        if not self._segments():
            return True
        deadline = time.monotonic() + seconds
        with self._lock("drain", wait=0) as locked:
            if not locked:
                return False
            for name in self._segments():
                taken, left = self._drain_segment(o, name, deadline)
                if left or not taken:
                    return taken
        return True

    def _drain_segment(self, o, name, deadline):
        """Send the requests of a segment. Whether Saltern took them, and whether some are left."""
        noted, offset = self._noted("sent")
        offset = offset if noted == name else 0
        try:
            file = os.fdopen(self._open(name, os.O_RDONLY), "rb")
        except OSError as err:
            if _once(("segment", name)):
                log.error("Requests wait that cannot be read: %s", err)
            return True, False
        with file:
            while True:
                batch, end = _records(file, offset)
                if not batch:
                    break
                if not self._send(o, batch):
                    return False, True
                offset = end
                with contextlib.suppress(OSError):
                    self._note("sent", name, offset)
                if time.monotonic() >= deadline:
                    break
        return True, not self._remove(name, offset)

    def _send(self, o, bodies):
        """Send requests; False if Saltern takes no more of them now."""
        answers = _answers(o, bodies, o.timeout)
        for body, (error, _) in zip(bodies, answers, strict=True):
            if error is None:
                continue
            refusal = _refusal(error)
            if refusal.name in _LATER:
                return False
            _resent(o, body, refusal)
        return True

    def _remove(self, name, offset):
        """Remove a segment. False if there is more of it to send."""
        with self._lock() as locked:
            try:
                with os.fdopen(self._open(name, os.O_RDONLY), "rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    age = time.time() - os.fstat(file.fileno()).st_mtime
                    more = bool(_records(file, offset)[0])
            except OSError:
                return True
            if more:
                return False  # it has grown, or the time was up
            torn = size - offset
            if not locked or ((torn or not size) and 0 <= age < _TORN):
                return True  # it may just be written to; a later call sees
            if torn:
                log.error("%d bytes at the end of %s were torn by a crash", torn, name)
            self._unlink(name[len(self.prefix) :])
        return True

    def local_jid(self, o):
        """A jid for a job that is begun while Saltern is away, unlike all others made here."""
        jid = salt.utils.jid.gen_jid(_opts())
        if len(jid) != 20:  # unique_jid: Salt sees to it
            return jid
        process = _process()
        with contextlib.suppress(OSError):
            self._make_folder(o)
        with self._lock() as locked:
            noted = self._noted("jid")[0] if locked else None
            process.jid = jid = _later_jid(jid, max(process.jid, noted or ""))
            if locked:
                with contextlib.suppress(OSError):
                    self._note("jid", jid, 0)
        return jid

    # -- files

    def _path(self, name):
        return os.path.join(self.folder, self.prefix + name)

    def _segments(self):
        """The names of the segments, oldest first."""
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        return sorted(filter(self.segment.fullmatch, names))

    def _size(self):
        total = 0
        for name in self._segments():
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(self.folder, name)).st_size
        return total

    def _make_folder(self, o):
        if os.path.isdir(self.folder):
            return
        base = os.path.dirname(self.folder)
        if not os.path.isdir(base):
            os.makedirs(base, exist_ok=True)
            os.chmod(base, 0o755)  # whatever umask Salt has: it holds folders of several users
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.folder, 0o700)
            # root came first (salt-run, a minion's first start): the folder is the master's.
            if pwd is not None and os.geteuid() == 0 and o.user not in (None, "root"):
                with contextlib.suppress(KeyError, OSError, TypeError):
                    user = pwd.getpwnam(o.user)
                    os.chown(self.folder, user.pw_uid, user.pw_gid)

    def _open(self, name, flags):
        """Open a file of the folder, which has to be a plain one of the folder's owner."""
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        flags |= getattr(os, "O_BINARY", 0)
        fd = os.open(os.path.join(self.folder, name), flags, 0o600)
        try:
            if hasattr(os, "geteuid"):
                self._check_owner(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _check_owner(self, fd):
        file, folder = os.fstat(fd), os.stat(self.folder)
        if os.geteuid() == 0 and file.st_uid == 0 and folder.st_uid != 0:
            os.fchown(fd, folder.st_uid, folder.st_gid)
        elif file.st_uid not in (os.geteuid(), folder.st_uid):
            raise PermissionError(13, "a file of another user")
        if not stat.S_ISREG(file.st_mode) or file.st_nlink > 1:
            raise PermissionError(13, "not a plain file")

    @contextlib.contextmanager
    def _lock(self, name="lock", wait=1.0):
        """
        Hold a lock of the folder: True when it is held, None when there is no such file to be had,
        False when it was not to be had in time.
        """
        try:
            fd = self._open(self.prefix + name, os.O_CREAT | os.O_RDWR)
        except OSError:
            yield None
            return
        try:
            yield _locked(fd, wait)
        finally:
            os.close(fd)  # gives the lock back

    def _noted(self, name):
        """The name and number that a file notes, (None, 0) where it does not."""
        try:
            with open(self._path(name), encoding="utf-8") as file:
                noted, number = file.read().split()
            return noted, int(number)
        except (OSError, ValueError):
            return None, 0

    def _note(self, name, noted, number):
        fd = self._open(self.prefix + name, os.O_CREAT | os.O_WRONLY)
        try:
            # What a crash leaves between these two reads as nothing noted.
            os.ftruncate(fd, os.write(fd, f"{noted} {number}\n".encode()))
        finally:
            os.close(fd)

    def _sync_folder(self):
        with contextlib.suppress(OSError):  # Windows does not open folders
            fd = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _unlink(self, name):
        with contextlib.suppress(OSError):
            os.unlink(self._path(name))


def _locked(fd, wait):
    """Lock a file, for as long as it is open; False if that takes longer than wait seconds."""
    deadline = time.monotonic() + wait
    while True:
        try:
            if fcntl is not None:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            elif msvcrt is not None:
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.002)


def _records(file, offset):
    """
    A batch of the requests from an offset on, and where the next one begins. Ends before what is
    torn.
    """
    batch, size = [], 0
    file.seek(offset)
    while len(batch) < _BATCH and size < _BATCH_BYTES:
        head = file.read(_RECORD.size)
        if len(head) < _RECORD.size:
            break
        magic, length, crc = _RECORD.unpack(head)
        body = file.read(length) if magic == _MAGIC else b""
        if magic != _MAGIC or len(body) < length or zlib.crc32(body) != crc:
            break
        batch.append(body)
        size += length
        offset += _RECORD.size + length
    return batch, offset


def _later_jid(jid, last):
    """The jid, or the one after the last where that is as late or later, though not by a minute."""
    form = "%Y%m%d%H%M%S%f"
    now = datetime.datetime.strptime(jid, form)
    try:
        before = datetime.datetime.strptime(last, form)
    except ValueError:  # there was none
        return jid
    if not now <= before < now + datetime.timedelta(minutes=1):
        return jid
    return (before + datetime.timedelta(microseconds=1)).strftime(form)


# ---- The process --------------------------------------------------------------------------------


def _process():
    """
    What this process holds: connections, loads that wait for their return, and what was logged.

    It is kept outside of this module (see _shared), and made again after a fork: the child must not
    use its parent's connections.
    """
    holder = _holder()
    process = getattr(holder, "process", None)
    if process is None or process.pid != os.getpid():
        process = holder.process = types.SimpleNamespace(
            pid=os.getpid(),
            local=threading.local(),  # connection, held
            minted={},  # jids of prep_jid() whose load has not come yet
            limits={},  # the largest payload, by address
            spools={},
            said=set(),
            jid="",  # the last one that was made here
            event=0,  # the time in the id of the next event, if it is later than now
        )
    return process


def _once(key):
    """True the first time in the life of the process; for what is to be logged once."""
    said = _process().said
    first = key not in said
    said.add(key)
    return first
