"""Outlines on images."""

import numpy as np

from fedce.data.overlays import ENLARGED, FOUND, TRUTH, compared


def test_truth_is_green_and_what_was_found_amber():
    pixels = np.full((1, 8, 8), 10, np.uint8)
    truth, found = np.zeros((2, 1, 8, 8), bool)
    truth[0, 1:4, 1:4] = True
    found[0, 5:8, 5:8] = True
    picture = compared(pixels, truth, found)
    assert picture.shape == (8 * ENLARGED, 8 * ENLARGED, 3)
    assert tuple(picture[ENLARGED, ENLARGED]) == TRUTH
    assert tuple(picture[5 * ENLARGED, 5 * ENLARGED]) == FOUND
    assert tuple(picture[0, 0]) == (10, 10, 10)
    assert tuple(picture[ENLARGED + 1, ENLARGED + 1]) == (10, 10, 10), "the inside stays as it is"
    assert (pixels == 10).all()
