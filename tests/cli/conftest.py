"""Fixtures of the command line, without processes of their own."""

from tests.cli.programs import baton as baton
from tests.cli.programs import write as write
