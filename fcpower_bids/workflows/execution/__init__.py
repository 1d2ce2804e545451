"""Where recordings are computed: processes of this machine, or a cluster."""
