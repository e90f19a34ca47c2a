"""The work of `compile_resnet50`: one network, eager and compiled."""
