"""Behaviour of plugins: pluggy hooks, group ``scellis.hooks``. Blocks come by the catalog, never from here.

A hook plugin is a module or object named by an entry point; its functions carry the door's ``hookimpl`` marker::

    from scellis_core.plugin import hookimpl

    @hookimpl
    def scellis_event(event):
        print(event)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pluggy

from scellis_core.catalog.discovery import providers, why
from scellis_core.errors import CatalogError, ScellisError

GROUP = "scellis.hooks"

hookspec = pluggy.HookspecMarker("scellis")


class Specs:
    """What a plugin may implement."""

    @hookspec
    def scellis_event(self, event: Any) -> None:
        """Called for every event of a run, after the host loop has acted on it.

        Args:
            event: the event object that callbacks of the Python API receive.
        """

    @hookspec
    def scellis_commands(self, add: Callable[[Any], None]) -> None:
        """Called once when the command line is built.

        Args:
            add: takes one command (a ``click.Command``) and adds it to ``scellis``.
        """


HOOKS = ("scellis_event", "scellis_commands")


@dataclass(frozen=True)
class HookPlugin:
    """One installed hook plugin.

    Attributes:
        name: of its entry point.
        distribution, version: where it comes from.
        module: its entry point's value.
        state: ``ok`` or ``broken: <reason>``.
        hooks: the hooks it implements.
    """

    name: str
    distribution: str
    version: str
    module: str
    state: str = "ok"
    hooks: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """``plugin scellis-bell 0.1``, as errors show it."""
        return f"plugin {self.distribution} {self.version}"


class Hooks:
    """The hook plugins of this environment.

    Attributes:
        plugins: every one found, broken ones included.
        manager: pluggy's, with the sound ones registered.
    """

    def __init__(self) -> None:
        self.manager = pluggy.PluginManager("scellis")
        self.manager.add_hookspecs(Specs)
        self.plugins: list[HookPlugin] = []

    @classmethod
    def discover(cls) -> Hooks:
        """Load every installed hook plugin; one that fails is listed as broken and stops nothing."""
        hooks = cls()
        for provider in providers(GROUP):
            for point in provider.points:
                plugin = HookPlugin(point.name, provider.name, provider.version, point.value)
                try:
                    loaded = point.load()
                except (Exception, SystemExit) as error:  # noqa: BLE001  one broken plugin stops nothing else
                    hooks.plugins.append(replace(plugin, state=f"broken: {why(error)}"))
                else:
                    hooks.add(loaded, plugin)
        return hooks

    def add(self, loaded: Any, plugin: HookPlugin) -> HookPlugin:
        """Register a module or object; returns its listing, broken where a hook is misspelt or has wrong arguments."""
        key = f"{plugin.distribution}:{plugin.name}"
        try:
            self.manager.register(loaded, key)
            self.manager.check_pending()
            callers = self.manager.get_hookcallers(loaded) or []
            names = tuple(c.name for c in callers)
            if not names:
                raise pluggy.PluginValidationError(loaded, f"it implements none of {', '.join(HOOKS)}")
            plugin = replace(plugin, hooks=names)
        except (pluggy.PluginValidationError, ValueError) as error:
            if self.manager.get_plugin(key) is not None:
                self.manager.unregister(name=key)
            plugin = replace(plugin, state=f"broken: {why(error)}")
        self.plugins.append(plugin)
        return plugin

    def event(self, event: Any) -> list[ScellisError]:
        """Tell every plugin of an event.

        A plugin that raises is taken out, its state becomes broken, and the others are told all the same.

        Returns:
            The failures, for the caller to show.
        """
        return self._call("scellis_event", event=event)

    def commands(self, add: Callable[[Any], None]) -> list[ScellisError]:
        """Let every plugin add its commands; failures as in :meth:`event`."""
        return self._call("scellis_commands", add=add)

    def _call(self, hook: str, **arguments: Any) -> list[ScellisError]:
        failures: list[ScellisError] = []
        for i, plugin in enumerate(self.plugins):
            if plugin.state != "ok" or hook not in plugin.hooks:
                continue
            others = [
                p for n, p in self.manager.list_name_plugin() if n != f"{plugin.distribution}:{plugin.name}" and p
            ]
            try:
                self.manager.subset_hook_caller(hook, others)(**arguments)
            except Exception as error:  # noqa: BLE001  a plugin's fault is reported and must not end the run
                reason = why(error)
                self.manager.unregister(name=f"{plugin.distribution}:{plugin.name}")
                self.plugins[i] = replace(plugin, state=f"broken: {reason}")
                failures.append(
                    CatalogError(f"{plugin.origin} {hook}", "a hook that returns", reason, "removing the plugin")
                )
        return failures
