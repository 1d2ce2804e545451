"""nipype interfaces: load, call one function, save. Each can be used alone, in any nipype workflow.

Ports are files, numbers and names. Nodes exchange files of arrays and JSON (`bundles`), one per
atlas where a step works atlas by atlas; ``numpy.load`` reads it.
"""
