"""What a run will do, known before it reads volumes: the same for ``--dry-run`` and for the run itself."""
