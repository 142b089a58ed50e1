"""The rules of an adaptive test: start, selection, content, exposure, stopping, estimation."""
