"""Sites with images and masks, loaded from disk or drawn by a built-in federation, ready for training."""

from fedce.data.site import SiteData, Sites
from fedce.data.sites import load_site, load_sites

__all__ = ["SiteData", "Sites", "load_site", "load_sites"]
