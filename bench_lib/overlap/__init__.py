"""Work that should run side by side: copies beside kernels, the loading of batches beside training steps."""
