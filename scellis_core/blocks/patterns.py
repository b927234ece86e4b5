"""Path patterns: ``blocks.*.attn.{q,v}``, ``*.bias|*norm*``."""

from __future__ import annotations

import re
from functools import lru_cache


def expand_pattern(pattern: str) -> list[str]:
    """The alternatives of a pattern: ``|`` separates whole patterns, ``{a,b}`` parts of one."""
    out: list[str] = []
    for whole in pattern.split("|"):
        pending = [whole.strip()]
        while pending:
            item = pending.pop(0)
            brace = re.search(r"\{([^{}]*)\}", item)
            if brace is None:
                out.append(item)
            else:
                pending += [item[: brace.start()] + part + item[brace.end() :] for part in brace[1].split(",")]
    return out


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    parts = [
        "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in item)
        for item in expand_pattern(pattern)
    ]
    return re.compile("|".join(f"(?:{p})" for p in parts))


def match_path(pattern: str, path: str) -> bool:
    """Whether a whole path matches; ``*`` stands for any characters, dots included, ``?`` for one."""
    return _regex(pattern).fullmatch(path) is not None
