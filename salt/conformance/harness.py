"""
A check, what it is put to, and what came out.
"""

import contextlib
import dataclasses
import itertools
import multiprocessing
import signal
import time
import traceback

import salt.loader

#: Seconds that one check may take. A master's worker is blocked by each call; none of these is large.
LIMIT = 60

CHECKS = []


@dataclasses.dataclass(frozen=True)
class Check:
    """One expectation of one function."""

    function: str
    title: str
    run: object
    #: Needs a second set of options in which the returner's store cannot be reached.
    down: bool = False


def check(function, title, down=False):
    """Adds a check of the function that it is about. The test is called with a Subject and a jid of its own."""

    def add(run):
        CHECKS.append(Check(function, title, run, down))
        return run

    return add


class Missing(Exception):
    """The returner does not have the function."""


class Wrong(AssertionError):
    """It answered, and not rightly."""


def same(got, want, what="answer"):
    """Equal in value and in the types all the way down: 1 is neither True nor 1.0 to who compares jobs."""
    if typed(got) != typed(want):
        raise Wrong(f"{what}: {shown(got)}, not {shown(want)}")


def holds(condition, message):
    if not condition:
        raise Wrong(message)


def typed(value):
    if isinstance(value, dict):
        return ("dict", sorted(((typed(k), typed(v)) for k, v in value.items()), key=repr))
    if isinstance(value, (list, tuple)):
        return ("list", [typed(v) for v in value])
    if isinstance(value, float) and value != value:
        return ("float", "nan")
    return (type(value).__name__, value)


def shown(value, limit=70):
    text = ascii(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


class Subject:
    """
    A returner as Salt's loader gives it: ``subject.get_jid(jid)``.
    """

    def __init__(self, name, opts):
        self.name = name
        self.opts = opts
        self.loader = salt.loader.returners(opts, salt.loader.minion_mods(opts, context={}))

    def __getattr__(self, function):
        if f"{self.name}.{function}" not in self.loader:
            raise Missing(function)
        return self.loader[f"{self.name}.{function}"]

    def but(self, **opts):
        """The same returner with other options."""
        return Subject(self.name, {**self.opts, **opts})


def jids():
    """Jids of this run, in Salt's form and in rising order."""
    base = time.strftime("%Y%m%d%H%M%S", time.gmtime())
    for n in itertools.count():
        yield f"{base}{n:06d}"


def run(name, opts, down=None):
    """
    Puts a returner through all checks; gives [function, title, outcome, note] of each. With down, the options of a
    store that is away, those that need them too.
    """
    results = []
    for c, jid in zip(CHECKS, jids(), strict=False):
        if c.down and not down:
            outcome, note = "none", ""
        else:
            outcome, note = _apart(lambda c=c, jid=jid: _run(c, Subject(name, down if c.down else opts), jid))
        results.append([c.function, c.title, outcome, note])
    return results


def _apart(call):
    """What a call gives in a process of its own: a returner may hold its first connection as long as that lives."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=lambda: there.send(call()))
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(LIMIT + 10) else ("wrong", f"no answer in {LIMIT} s")
    except EOFError:
        return "wrong", "its process died"
    finally:
        process.kill()
        process.join()


def _run(c, subject, jid):
    try:
        with _limit(LIMIT):
            c.run(subject, jid)
    except Missing as missing:
        return "missing", f"no {missing}"
    except Wrong as wrong:
        return "wrong", str(wrong)
    except TimeoutError:
        return "wrong", f"no answer in {LIMIT} s"
    except Exception as err:  # whatever it raises is its answer
        where = traceback.extract_tb(err.__traceback__)[-1].name
        return "wrong", f"raised {type(err).__name__} in {where}: {shown(str(err), 90)}"
    return "right", ""


@contextlib.contextmanager
def _limit(seconds):
    def late(_signal, _frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def until(condition, seconds=20):
    """Whether a condition comes true in that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False
