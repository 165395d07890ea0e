"""
The page that says what came out: docs/compatibility.md.
"""

import collections

MARKS = {"right": "right", "wrong": "**wrong**", "missing": "missing", "none": "–"}

HEAD = """\
# Compatibility

What Salt's master, runners and CLI expect of a returner, put to the returners that people use and to Saltern: the same
calls through Salt's own loader, each with its right answer from Salt's source and tests
([salt/conformance](../salt/conformance)). `make conformance` made this page{when}; do not edit it.

A check is *right*, *wrong* (it answered otherwise, or raised), or *missing* (the returner lacks the function). "–" is
what does not apply: a returner without a store has none that could be away.

| returner | tried with |
|---|---|
"""


def render(kinds, results, when, own):
    """The page, of {name: [[function, title, outcome, note]]}."""
    names = [k.name for k in kinds if k.name in results]
    text = HEAD.format(when=when)
    text += "".join(f"| {k.name} | {k.note} |\n" for k in kinds if k.name in results)
    return text + _table(names, results) + _checks(names, results) + _wrongs(names, results) + own


def _table(names, results):
    functions = list(dict.fromkeys(row[0] for row in results[names[0]]))
    out = "\n## By function\n\nright / wrong / missing.\n\n"
    out += "| function | " + " | ".join(names) + " |\n|---|" + "---|" * len(names) + "\n"
    total = {name: collections.Counter() for name in names}
    for function in functions:
        cells = []
        for name in names:
            counts = collections.Counter(row[2] for row in results[name] if row[0] == function)
            total[name] += counts
            cells.append(_cell(counts))
        out += f"| {function} | " + " | ".join(cells) + " |\n"
    return out + "| **all** | " + " | ".join(f"**{_cell(total[name])}**" for name in names) + " |\n"


def _cell(counts):
    if not counts["right"] and not counts["wrong"]:
        return "missing" if counts["missing"] else "–"
    return f"{counts['right']} / {counts['wrong']} / {counts['missing']}"


def _checks(names, results):
    out = "\n## Check by check\n\n"
    out += "| function | check | " + " | ".join(names) + " |\n|---|---|" + "---|" * len(names) + "\n"
    for i, (function, title, _, _) in enumerate(results[names[0]]):
        cells = (MARKS[results[name][i][2]] for name in names)
        out += f"| {function} | {_safe(title)} | " + " | ".join(cells) + " |\n"
    return out


def _wrongs(names, results):
    out = "\n## What was wrong\n"
    for name in names:
        wrong = [row for row in results[name] if row[2] == "wrong"]
        out += f"\n### {name}\n\n"
        out += "".join(f"- {f}, {_safe(t)}: `{_code(n)}`\n" for f, t, _, n in wrong) or "Nothing.\n"
    return out


def _safe(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _code(text):
    return " ".join(text.replace("`", "'").split())
