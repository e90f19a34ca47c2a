"""What goes wrong around a measurement: noticed, undone where it can be, and written down."""
