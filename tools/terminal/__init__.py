"""The recorded terminal session of the README."""
