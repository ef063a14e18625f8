"""What parts of screens are drawn with: lines, numbers as short text, graphs, colors, short names."""
