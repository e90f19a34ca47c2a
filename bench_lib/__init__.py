"""cuda-gains: what a CUDA driver, toolkit or PyTorch upgrade did, measured and judged."""

__version__ = "0.1.0"
__all__ = ["__version__"]
