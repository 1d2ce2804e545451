"""``python -m fcpower_bids``, and the console script."""

import os
import sys

# Python has put the current folder first, and would execute a json.py in it. It stays if the package itself is there.
if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
    del sys.path[0]

import signal

# Until the command line can answer to it, Ctrl-C ends the process at once and without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from fcpower_bids.app import entry_point

if __name__ == "__main__":
    entry_point()
