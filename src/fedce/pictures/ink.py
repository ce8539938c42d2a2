"""The colours of an SVG: inside a page they are the page's; as a separate file it is black on white."""

PAPER, PAGE_INK, FILE_INK = b'style="background:#fff" ', b"currentColor", b"#1c2126"


def standing_alone(svg: bytes) -> bytes:
    """A page's figure as a separate file."""
    return svg.replace(PAGE_INK, FILE_INK).replace(b"<svg ", b"<svg " + PAPER, 1)


def in_page(svg: bytes) -> bytes:
    """A separate file as a figure inside a page, in the page's colours."""
    return svg.replace(FILE_INK, PAGE_INK).replace(PAPER, b"", 1)
