"""Views of kvlab's runs for notebooks. kvlab finds them through the entry-point group ``kvlab.views``."""
