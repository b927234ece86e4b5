"""The Python API: ``import scellis``.

``load``, ``plan``, ``train``, ``resume``, ``open_run``, ``predict``, ``evaluate``, ``export``, ``metrics``,
``sample`` and the ``Record`` class. Each is imported when it is first used, so ``import scellis`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from scellis_core import __version__

if TYPE_CHECKING:
    from scellis_core.catalog import Catalog as Catalog
    from scellis_core.errors import ScellisError as ScellisError
    from scellis_core.record import Record as Record
    from scellis_core.train.api import (
        Result as Result,
    )
    from scellis_core.train.api import (
        evaluate as evaluate,
    )
    from scellis_core.train.api import (
        export as export,
    )
    from scellis_core.train.api import (
        load as load,
    )
    from scellis_core.train.api import (
        metrics as metrics,
    )
    from scellis_core.train.api import (
        open_run as open_run,
    )
    from scellis_core.train.api import (
        plan as plan,
    )
    from scellis_core.train.api import (
        predict as predict,
    )
    from scellis_core.train.api import (
        resume as resume,
    )
    from scellis_core.train.api import (
        sample as sample,
    )
    from scellis_core.train.api import (
        train as train,
    )

_API = "scellis_core.train.api"
_WHERE = {
    "Catalog": "scellis_core.catalog",
    "Record": "scellis_core.record",
    "ScellisError": "scellis_core.errors",
    **dict.fromkeys(
        ("Result", "evaluate", "export", "load", "metrics", "open_run", "plan", "predict", "resume", "sample", "train"),
        _API,
    ),
}

__all__ = ["__version__", *_WHERE]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'scellis' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
