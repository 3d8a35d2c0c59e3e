"""Export runs as OpenTelemetry spans and metrics.

May import runs and the layers below. The OpenTelemetry API is imported when an observer is created.
"""

from .observer import OTelObserver

__all__ = ["OTelObserver"]
