"""AllReduce by message size as charts: what was measured as curves, and the curves as a picture."""
