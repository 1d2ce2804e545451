"""``python -m fcpower_bids``."""

from fcpower_bids.cli.run import entry_point

if __name__ == "__main__":
    entry_point()
