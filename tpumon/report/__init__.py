"""Reports: the tables of a profile (overview, ops, steps, input, memory, environment), and of two compared.

Pure: profiles and figures in, frozen values and text out. One file per section, one row per section in `table.py`;
sections become blocks (`blocks.py`), and `render/` writes blocks as text, Markdown or HTML.
"""
