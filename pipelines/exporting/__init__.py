"""A model for other tools and servers: ONNX and safetensors files, an int8 graph for CPUs."""
