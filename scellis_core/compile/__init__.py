"""L2 -> L1 -> L0: from a resolved run to the step program that a device replays."""

from scellis_core.compile.programs import Compiled, compile_run

__all__ = ["Compiled", "compile_run"]
