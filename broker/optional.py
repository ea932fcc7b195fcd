"""The optional parts of a broker: what brings each of them, and its module, which its first use imports.

    optional.dashboard.open_dashboard(...)        # imports broker/views/dashboard.py, unless it is imported already

A start imports what every broker needs, and this table keeps it from the rest. No other file of broker/ imports inside
a function: a module that is optional has a row here, and its own imports at its top. docs/internals/start.md has what
that saves.
"""

# mypy: implicit-reexport
# ruff: noqa: F401

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # the types of the rows
    import importlib.metadata as installed

    import yaml

    from triomq.broker import configuration, tasks
    from triomq.broker.acl import access_table
    from triomq.broker.assembly import access_control, assignments, group, pop, readiness
    from triomq.broker.embedded import daemons
    from triomq.broker.figures import watching
    from triomq.broker.filters import conditions, sql92
    from triomq.broker.group import log as group_log
    from triomq.broker.group import master_decides
    from triomq.broker.grpc import port as grpc
    from triomq.broker.lifecycle import configuration_check
    from triomq.broker.processors import in_flight
    from triomq.broker.replication import slave_link
    from triomq.broker.settings import group as group_settings
    from triomq.broker.spans import export as span_export
    from triomq.broker.spans import otlp
    from triomq.broker.spans import pulls as traced_pulls
    from triomq.broker.spans import puts as traced_puts
    from triomq.broker.spans import recorder as span_recorder
    from triomq.broker.views import dashboard, own_totals, program
    from triomq.dashboard import site
    from triomq.monitoring import monitoring

# fmt: off
PARTS: Final = (
    # the setting or the event that brings it    name                   module
    ("aclEnable",                                "access_table",        "triomq.broker.acl.access_table"),
    ("aclEnable",                                "access_control",      "triomq.broker.assembly.access_control"),
    ("dashboardPort",                            "dashboard",           "triomq.broker.views.dashboard"),
    ("the dashboard's first visitor",            "program",             "triomq.broker.views.program"),
    ("the dashboard's first visitor",            "site",                "triomq.dashboard.site"),
    ("enableDLegerCommitLog",                    "group_settings",      "triomq.broker.settings.group"),
    ("enableDLegerCommitLog",                    "group_log",           "triomq.broker.group.log"),
    ("enableDLegerCommitLog",                    "group",               "triomq.broker.assembly.group"),
    ("enableDLegerCommitLog",                    "master_decides",      "triomq.broker.group.master_decides"),
    ("the first gRPC client",                    "grpc",                "triomq.broker.grpc.port"),
    ("metricsPort",                              "monitoring",          "triomq.monitoring.monitoring"),
    ("metricsPort",                              "watching",            "triomq.broker.figures.watching"),
    ("who asks for its runtime information",     "readiness",           "triomq.broker.assembly.readiness"),
    ("the first question for assignments",       "assignments",         "triomq.broker.assembly.assignments"),
    ("the first receive (POP), or its log",      "pop",                 "triomq.broker.assembly.pop"),
    ("the first question for what is in flight", "in_flight",           "triomq.broker.processors.in_flight"),
    ("the first question for its totals",        "own_totals",          "triomq.broker.views.own_totals"),
    ("tracesEndpoint",                           "span_export",         "triomq.broker.spans.export"),
    ("tracesEndpoint",                           "otlp",                "triomq.broker.spans.otlp"),
    ("tracesEndpoint, an extension's tracer",    "span_recorder",       "triomq.broker.spans.recorder"),
    ("tracesEndpoint, an extension's tracer",    "traced_puts",         "triomq.broker.spans.puts"),
    ("tracesEndpoint, an extension's tracer",    "traced_pulls",        "triomq.broker.spans.pulls"),
    ("a setting that names an extension",        "installed",           "importlib.metadata"),
    ("the first SQL92 expression",               "sql92",               "triomq.broker.filters.sql92"),
    ("the first SQL92 expression",               "conditions",          "triomq.broker.filters.conditions"),
    ("the first slave",                          "slave_link",          "triomq.broker.replication.slave_link"),
    ("conf/tools.yml of a slave",                "yaml",                "yaml"),
    ("mqbroker --check",                         "configuration_check", "triomq.broker.lifecycle.configuration_check"),
    ("a LocalCluster with settings of its own",  "configuration",       "triomq.broker.configuration"),
    ("the start of a LocalCluster",              "daemons",             "triomq.broker.embedded.daemons"),
    ("a jump of a VirtualClock",                 "tasks",               "triomq.broker.tasks"),
)
# fmt: on
_MODULES: Final = {name: module for _, name, module in PARTS}


def __getattr__(name: str) -> Any:
    """Return the module of a part. Raises ImportError if it needs a package that is not installed."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(module)
