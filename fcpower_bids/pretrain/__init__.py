"""Pretraining of F-BERT: a corpus, a student, a verdict against random weights."""
