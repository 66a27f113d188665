"""The studies. A file of this folder is all that one of them needs: STUDIES, a tuple of definition.Study, with its
points, its model and its words. catalogue.py finds it."""
