"""nipype interfaces: load, call one function, save; ports are files, numbers and names."""
