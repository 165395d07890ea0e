"""
What Salt's master, runners and CLI expect of a returner, as calls with their right answers.

One list of checks is put to every returner through Salt's own loader, so that the answers of local_cache, of those that
people use today and of Saltern stand side by side. Each check has a jid of its own; a check says what is right, from
Salt's source and tests, and local_cache is only the reference where it has the function.

``python -m conformance.worker NAME`` (in an environment with Salt) puts one returner through them, ``python -m
conformance`` all, and writes docs/compatibility.md. Another returner is one entry in subjects.py.
"""
