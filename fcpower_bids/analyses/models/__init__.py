"""Models that one can hand on: fitted on everyone, with what is needed to say how far a prediction can be trusted."""
