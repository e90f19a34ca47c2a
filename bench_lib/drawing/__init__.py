"""Charts of one campaign or comparison."""
