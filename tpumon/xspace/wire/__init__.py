"""Where things are in a serialized XSpace: fields, lines, events as positions. Nothing is decoded here."""
