"""formats: one file per report format.

A format module has
    SUFFIXES                               file endings that mean this format
    render(alignment, options) -> str      the whole report as text
"""
