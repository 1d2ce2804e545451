"""nipype workflows: wiring only."""
