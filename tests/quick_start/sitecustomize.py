"""Found by every Python program that tests start: the collector leaves alone what imports make.

torch, MONAI and Flower make half a million objects that stay to the end. To walk over them again and again while they
are imported, and once more when the program ends, takes a third of the time that such a program needs to start and end.
"""

import atexit
import gc

gc.set_threshold(100_000, 50, 1000)
atexit.register(gc.freeze)
