"""nipype interfaces: load, call one function, save; ports are files (`bundles`), numbers and names."""
