"""The pictures of built-in federations: drawn once, then mapped from the cache."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path

from PIL import Image

from fedce.base.errors import Problems
from fedce.base.tables import DataConfig
from fedce.data import cache as site_cache
from fedce.data import synthetic
from fedce.data.cache import Cached, Frame, Notify, Origin
from fedce.data.pixels import mask_values
from fedce.data.reader import Reading, volume_frames
from fedce.data.shape import spacing_of


def drawn_images(config: DataConfig, site: str, files: Sequence[str], notify: Notify) -> Cached:
    """A site's 2-D images; a changed generator has another key."""
    n, size = len(files), config.size or synthetic.SCALES[config.scale].size
    key = site_cache.key_of([_generator_version()], [config.source, site, n, size, config.seed])
    if (cached := site_cache.known(key, site, notify)) is not None:
        return cached
    notify(f"drawing {n} images of {config.source} {site} at {size}x{size}")
    images, masks = synthetic.generate(config.source, site, n, size, config.seed)
    frames = (Frame(images[i], masks[i], Origin(files[i], i, size, size, None, ())) for i in range(n))
    return _built(site_cache.build(site, key, frames, Problems()))


def volume_name(site: str, i: int) -> str:
    return f"{site}-{i:04d}"


def drawn_volumes(config: DataConfig, site: str, n: int, notify: Notify) -> Cached:
    """A site's volumes: drawn as its scanner makes them, then treated like volumes that were read from files."""
    how = _reading(config)
    about = [config.source, site, n, config.seed, {**asdict(how), "classes": list(how.classes)}]
    key = site_cache.key_of([_generator_version()], about)
    if (cached := site_cache.known(key, site, notify)) is not None:
        return cached
    notify(f"drawing {n} volumes of {config.source} {site}")
    frames = _frames(config, site, n, how)
    return _built(site_cache.build(site, key, frames, Problems(), of_volumes=how.is_3d))


def _reading(config: DataConfig) -> Reading:
    is_3d = config.dims == 3
    side = config.size or synthetic.SHAPE[1]
    size = None if is_3d else (side, side)
    classes = synthetic.FEDERATIONS[config.source].classes
    return Reading(
        classes, size, config.resize, config.intensity, config.plane, is_3d=is_3d, spacing=spacing_of(config)
    )


def _frames(config: DataConfig, site: str, n: int, how: Reading) -> Iterator[Frame]:
    for i in range(n):
        drawn = synthetic.draw_volume(config.source, site, i, config.seed)
        yield from volume_frames(volume_name(site, i), i, drawn.values, drawn.labels, drawn.spacing, how)


def _built(cached: Cached | None) -> Cached:
    assert cached is not None
    return cached


@cache
def _generator_version() -> str:
    sources = sorted(Path(synthetic.__file__).parent.glob("*.py"))
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def write_site(federation: str, site: str, folder: str | Path, n: int, *, size: int = 48, seed: int = 0) -> Path:
    """Write images of a built-in federation's site as a hospital would have them: folder/images and folder/masks.

    The masks hold the federation's values; of fundus6, 128 is the disc and 255 the cup, which lies inside.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     folder = write_site("fundus6", "site1", f"{place}/north", 3)
    ...     sorted(str(file.relative_to(folder)) for file in folder.rglob("*.png"))[::2]
    ['images/000.png', 'images/002.png', 'masks/001.png']
    """
    images, masks = synthetic.generate(federation, site, n, size, seed)
    classes = {name: list(values) for name, values in synthetic.FEDERATIONS[federation].classes.items()}
    for i, (image, mask) in enumerate(zip(images, masks, strict=True)):
        pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
        for kind, values in (("images", pixels), ("masks", mask_values(mask, classes))):
            path = Path(folder) / kind / f"{i:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(values).save(path)
    return Path(folder)
