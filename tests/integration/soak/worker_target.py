"""The runner that `baton worker` drives in the soak tests; two environment variables name its store and effect log."""

import os
from pathlib import Path

from tests.integration.soak.orders import EffectLog
from tests.integration.soak.worker import make_runner

from batonkit.stores import resolve_store

runner = make_runner(resolve_store(os.environ["BATON_SOAK_STORE"]), EffectLog(Path(os.environ["BATON_SOAK_EFFECTS"])))
