"""Public names that stand in one module and are loaded from others when they are first used (PEP 562)."""

import importlib
import sys
from collections.abc import Mapping
from types import FunctionType

_shelves: list["Shelf"] = []


class Shelf:
    """The public names of one module.

    Args:
        module: its name.
        names: its global names; what is loaded is bound there.
        homes: where each public name is defined. A module by its own name stands as ``"testing": "iriscw.testing"``.

    What stands on two shelves calls itself by the one that was made later.
    """

    def __init__(self, module: str, names: dict[str, object], homes: Mapping[str, str]) -> None:
        self._module, self._names, self._homes = module, names, homes
        _shelves.append(self)
        self.bind()

    def load(self, name: str) -> object:
        """Return what has a public name.

        Raises:
            AttributeError: nothing has.
        """
        home = self._homes.get(name)
        if home is None:
            raise AttributeError(f"module {self._module!r} has no attribute {name!r}")
        loaded = importlib.import_module(home)
        for shelf in _shelves:
            shelf.bind()
        return loaded if home == f"{self._module}.{name}" else getattr(loaded, name)

    def bind(self) -> None:
        """Bind the names of all modules that are loaded by now, and let them call themselves by this module.

        All, not only the one asked for: ``connect`` returns a ``Client`` whose class nobody may have named yet.
        """
        for name, home in self._homes.items():
            loaded = sys.modules.get(home)
            if loaded is None or name in self._names or home == f"{self._module}.{name}":
                continue
            value = getattr(loaded, name, None)
            if value is None:
                continue  # the module is still being imported
            if isinstance(value, type | FunctionType):
                value.__module__ = self._module
            self._names[name] = value
