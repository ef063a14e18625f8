"""What screens are made of: lines, figures, graphs, rows, the header; and the scene that they show."""
