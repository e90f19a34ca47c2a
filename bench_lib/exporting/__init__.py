"""Networks as ONNX files: what is exported, by which exporter, and whether onnxruntime computes the same."""
