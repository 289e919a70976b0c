"""What a notebook shows of an alignment beside its first screen: the first wrong tensor, the depth, the weight map."""

import base64
import re
import struct
import zlib
from dataclasses import replace

import numpy as np
from made_alignments import calibrated, classic

from reprod_log import Recording, align
from reprod_log.pairing.links import Link, Recipe, WeightMap
from reprod_log.report.notebook import render


def test_first_wrong_tensor_is_three_images_with_what_is_not_finite_in_black() -> None:
    ours = np.zeros((2, 3, 4))
    theirs = ours.copy()
    theirs[1, 2, 0], theirs[1, 0, 1] = np.nan, 5.0
    found = render(align(Recording.from_arrays({"y": ours}), Recording.from_arrays({"y": theirs})))
    images = re.findall(r'src="data:image/png;base64,([^"]+)"', found)
    assert len(images) == 3
    assert "[1, :, :]" in found
    data = base64.b64decode(images[1])
    assert data[:8] == bytes([137, 80, 78, 71, 13, 10, 26, 10])
    assert struct.unpack(">II", data[16:24]) == (4, 3)
    size = struct.unpack(">I", data[33:37])[0]
    pixels = np.frombuffer(zlib.decompress(data[41 : 41 + size]), np.uint8).reshape(3, 13)[:, 1:].reshape(3, 4, 3)
    assert pixels[2, 0].tolist() == [0, 0, 0]
    assert pixels[0, 1].tolist() == [192, 80, 0]
    assert pixels[1, 1].tolist() == [255, 255, 255]


def test_error_along_depth_has_a_point_for_each_entry() -> None:
    found = render(calibrated())
    plain = [one for one in calibrated().verdict.judgements if not one.key.run]
    assert found.count("<circle") == len(plain)
    assert "#cf222e" in found
    assert "<circle" not in render(align(Recording(()), Recording(())))


def test_weight_map_is_a_folded_table() -> None:
    weights = WeightMap((Link("fc.weight", (4, 3), ("linear.weight",), ((4, 3),), Recipe(), "values"),))
    found = render(replace(classic(), weight_map=weights))
    assert "<details><summary>" in found
    assert "linear.weight" in found
    assert "4×3" in found
    assert "linear.weight" not in render(classic())
