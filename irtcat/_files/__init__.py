"""Reading and writing files: safely, atomically, with bounds."""
