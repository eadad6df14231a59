"""Exporting a trained encoder to an ONNX graph or an OpenVINO model."""
