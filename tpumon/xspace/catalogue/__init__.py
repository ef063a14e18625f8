"""What kinds of ops there are, known once per process, and their totals."""
