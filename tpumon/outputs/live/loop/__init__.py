"""The loop of the live view, and the terminal that it draws on and reads keys from."""
