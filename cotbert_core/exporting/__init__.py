"""A trained encoder as an ONNX graph or an OpenVINO model."""
