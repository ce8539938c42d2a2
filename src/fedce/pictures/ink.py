"""The ink of an SVG: in a page it is the page's, in a file of its own it is black on white."""

PAPER, PAGE_INK, FILE_INK = b'style="background:#fff" ', b"currentColor", b"#1c2126"


def standing_alone(svg: bytes) -> bytes:
    """A figure of a page as a file of its own."""
    return svg.replace(PAGE_INK, FILE_INK).replace(b"<svg ", b"<svg " + PAPER, 1)


def in_page(svg: bytes) -> bytes:
    """A file of its own as a figure of a page, in the colours of that page."""
    return svg.replace(FILE_INK, PAGE_INK).replace(PAPER, b"", 1)
