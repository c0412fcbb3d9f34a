"""A trained network as an ONNX graph that ranks: cheaper than the network, and proven equal to it."""
