"""The pictures of the documentation, as SVG; `hack/gen_pictures.py` writes them."""
