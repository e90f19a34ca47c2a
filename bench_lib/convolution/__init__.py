"""The work of `amp_conv` and `cudnn_selection`: precision, shapes, cuDNN through torch and by path."""
