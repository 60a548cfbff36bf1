"""Many files as one table.

``sources`` finds, recognizes and opens files and objects; ``partitions`` makes columns of the names of directories;
``filters`` chooses rows, and what may have them; ``one_table`` is the whole.
"""

from shmarrow.scans.one_table import Scan as Scan
from shmarrow.scans.one_table import scan as scan
from shmarrow.scans.sources import open as open
