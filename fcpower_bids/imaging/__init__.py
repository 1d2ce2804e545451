"""The only code that sees voxels: atlases, streaming parcellation, confounds."""
