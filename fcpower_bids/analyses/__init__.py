"""Group analyses: arrays and tables in, long tables out; nothing here touches the disk."""
