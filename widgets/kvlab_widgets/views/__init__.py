"""The views, one a file: a function that makes the models, and beside it the half that runs in the browser."""
