"""The plan of a run, made before it reads volumes: the same for ``--dry-run`` and for the run itself."""
