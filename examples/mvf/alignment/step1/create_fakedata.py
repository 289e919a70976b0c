"""Makes the fake clips and labels of steps 1, 3 and 4: fake_data.npy and fake_label.npy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import inputs
from settings import read_settings


def main() -> None:
    clips, labels = inputs.load_clips(read_settings(__doc__))
    print(f"clips {clips.shape} {clips.dtype}, labels {labels.tolist()}")


if __name__ == "__main__":
    main()
