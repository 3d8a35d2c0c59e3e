"""Runs in the background: their subscribers, and watchers in other processes."""
