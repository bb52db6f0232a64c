"""The image and the Compose variants, without Docker."""
