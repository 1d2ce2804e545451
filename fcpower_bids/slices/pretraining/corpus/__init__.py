"""The corpus of the training: its packs and their proof, the public layout, the teacher."""
