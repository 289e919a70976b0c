"""Makes the model pairs importable, which several folders of tests share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
