"""From images and masks on disk, or a built-in federation, to sites that train."""

from fedce.data.sites import SiteData, Sites, load_site, load_sites

__all__ = ["SiteData", "Sites", "load_site", "load_sites"]
