"""`python -m batonkit` is the same as `baton`."""

from .cli.main import main

main()
