"""Reports: the sections of a profile (overview, ops, steps, input, memory, environment), and two profiles compared.

Profiles and figures in, text out. A section has a module, with Structs that are its JSON, `build` and `blocks`, and a
row in `sections.py`; `render/` writes blocks as text, Markdown or HTML.
"""
