"""What one organisation runs: configuration, job, identity, run folders, commands, the daemon."""

__all__: list[str] = []
