"""Benchmarks of workers: latency, throughput and take-over with real processes."""
