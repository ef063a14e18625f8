"""Parts of screens: the scene and the frame that they show; header, rows, summary, a worker's figures."""
