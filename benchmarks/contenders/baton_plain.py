"""Baton without the middleware of a workload, to be timed in the same rounds as Baton with it."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.contender import RunOnce
from benchmarks.contenders import baton
from benchmarks.script import Script
from benchmarks.workloads import Workload


def prepare(workload: Workload, script: Script) -> RunOnce:
    return baton.prepare(replace(workload, has_middleware=False), script)
