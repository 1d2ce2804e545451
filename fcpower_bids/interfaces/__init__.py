"""nipype interfaces: load, call one function, save."""
